/* SPDX-License-Identifier: Apache-2.0 */
/* Every header of the pvrdma ABI, compiled for its debug information. */
#include <linux/types.h>
#include <rdma/vmw_pvrdma-abi.h>
#include "pvrdma_dev_api.h"
#include "pvrdma_ring.h"
#include "pvrdma_verbs.h"
