/* The dispatcher's program for tc. */
#include "helpers.h"
#include "maps.h"

SEC("classifier") int dispatch_tc(struct __sk_buff *packet)
{
	__u32 zero = 0;
	struct address a = {};
	struct service_key service = {};
	struct flow_key flow = {};
	struct network_key network = {};
	struct mac mac = {};

	if (!bpf_map_lookup_elem(&settings, &zero) || bpf_map_lookup_elem(&vips, &a) ||
	    bpf_map_lookup_elem(&services, &service) || bpf_map_lookup_elem(&rows, &zero) ||
	    bpf_map_lookup_elem(&nodes, &zero) || bpf_map_lookup_elem(&steerers, &mac) ||
	    bpf_map_lookup_elem(&verdicts, &zero) || bpf_map_lookup_elem(&service_counts, &zero) ||
	    bpf_map_lookup_elem(&node_counts, &zero) || bpf_map_lookup_elem(&flows, &flow) ||
	    bpf_map_lookup_elem(&loads, &zero) || bpf_map_lookup_elem(&assigned, &zero) ||
	    bpf_map_lookup_elem(&sources, &a) || bpf_map_lookup_elem(&total, &zero) ||
	    bpf_map_lookup_elem(&networks, &network) || bpf_ringbuf_output(&events, &flow, 4, 0))
		return -1;
	return -1;
}

char program_license[] SEC("license") = "Dual MIT/GPL";
