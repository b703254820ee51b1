/* SPDX-License-Identifier: Apache-2.0 */
/* Preprocessed only: the macros of the ABI headers and of the driver's own header. */
#include "abi.c"
#include "pvrdma.h"
