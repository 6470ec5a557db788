/* Packets and bytes, of each processor apart. */
#pragma once

#include "table.h"

INLINE void count(void *map, __u32 place, __u32 bytes)
{
	struct count *count = bpf_map_lookup_elem(map, &place);

	if (!count)
		return;
	count->packets++;
	count->bytes += bytes;
}

GLOBAL int count_verdict(__u32 verdict, __u32 service, __u32 node, __u32 bytes)
{
	count(&verdicts, verdict, bytes);
	if (service < SERVICES_MAX)
		count(&service_counts, service, bytes);
	if (node < NODES_MAX)
		count(&node_counts, node, bytes);
	return 0;
}

/* What every program counts: what became of a packet, and for whom. */
INLINE void count_all(__u32 verdict, const struct way *way, __u32 bytes)
{
	count_verdict(verdict, way->service, way->node ? way->node_index : NO_NODE, bytes);
}
