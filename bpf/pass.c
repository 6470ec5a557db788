/* Passes everything: a veth whose peer redirects frames to it by XDP takes
 * them only while it has a program of its own (drivers/net/veth.c).
 */
#include "helpers.h"

SEC("xdp") int pass(struct xdp_md *packet)
{
	return XDP_PASS;
}

char program_license[] SEC("license") = "Dual MIT/GPL";
