/* SPDX-License-Identifier: Apache-2.0 */
/* Empty: pvrdma.h is read for its macros only. */
