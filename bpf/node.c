/* The node's program, at tc ingress. */
#define SKEP_NODE
#include "helpers.h"
#include "maps.h"

SEC("classifier") int node(struct __sk_buff *packet)
{
	__u32 zero = 0;
	struct address a = {};
	struct service_key service = {};
	struct mac mac = {};

	if (!bpf_map_lookup_elem(&settings, &zero) || bpf_map_lookup_elem(&vips, &a) ||
	    bpf_map_lookup_elem(&services, &service) || bpf_map_lookup_elem(&rows, &zero) ||
	    bpf_map_lookup_elem(&nodes, &zero) || bpf_map_lookup_elem(&steerers, &mac) ||
	    bpf_map_lookup_elem(&verdicts, &zero) || bpf_map_lookup_elem(&service_counts, &zero) ||
	    bpf_map_lookup_elem(&node_counts, &zero))
		return -1;
	return -1;
}

char program_license[] SEC("license") = "Dual MIT/GPL";
