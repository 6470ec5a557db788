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

/* What every program counts: what became of a packet, and for whom. */
INLINE void count_all(__u32 verdict, const struct way *way, __u32 bytes)
{
	count(&verdicts, verdict, bytes);
	if (way->service < SERVICES_MAX)
		count(&service_counts, way->service, bytes);
	if (way->node)
		count(&node_counts, way->node_index, bytes);
}
