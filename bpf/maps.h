/* The maps: what the loader fills and the programs read.
 *
 * Pinned by name, so that a loader that comes back finds them as they were.
 * The loader sets the sizes of `flows`, `sources`, `rows` and `events`.
 * Keys and values are told in abi.h. The host build has its own (host/maps.h).
 */
#pragma once

#include "abi.h"

#ifdef SKEP_HOST
#include "host/maps.h"
#define ROWS_DEFAULT (SERVICES_MAX * 2 * ROWS)
#else

/* Of one service; the loader knows how many there are. */
#define ROWS_DEFAULT (2 * ROWS)

#define NUMBER(field, number) int(*field)[number]
#define PINNED NUMBER(pinning, 1 /* LIBBPF_PIN_BY_NAME */)

#define MAP_FLAGS(map, kind, key_type, value_type, entries, flags) \
	struct {                                                   \
		NUMBER(type, BPF_MAP_TYPE_##kind);                 \
		__typeof__(key_type) *key;                         \
		__typeof__(value_type) *value;                     \
		NUMBER(max_entries, entries);                      \
		NUMBER(map_flags, flags);                          \
		PINNED;                                            \
	} map SEC(".maps")

#define RING(map, bytes)                           \
	struct {                                   \
		NUMBER(type, BPF_MAP_TYPE_RINGBUF); \
		NUMBER(max_entries, bytes);        \
		PINNED;                            \
	} map SEC(".maps")

#endif

#define MAP(map, kind, key_type, value_type, entries) \
	MAP_FLAGS(map, kind, key_type, value_type, entries, 0)

MAP(settings, ARRAY, __u32, struct settings, 1);
MAP(vips, HASH, struct address, __u32, SERVICES_MAX);
MAP(services, HASH, struct service_key, struct service, SERVICES_MAX);
/* The loader reads all of it again and again: by a call for each row that would cost percents of a core. */
MAP_FLAGS(rows, ARRAY, __u32, struct row, ROWS_DEFAULT, BPF_F_MMAPABLE);
MAP(nodes, ARRAY, __u32, struct node, NODES_MAX);
MAP(steerers, HASH, struct mac, __u32, 2 * NODES_MAX);
MAP(verdicts, PERCPU_ARRAY, __u32, struct count, VERDICTS);
MAP(service_counts, PERCPU_ARRAY, __u32, struct count, SERVICES_MAX);
MAP(node_counts, PERCPU_ARRAY, __u32, struct count, NODES_MAX);

#ifdef SKEP_NODE
/* Empty where nothing is handed off: memory as entries come. */
MAP_FLAGS(moves, HASH, struct move_key, struct move, MOVES_MAX, BPF_F_NO_PREALLOC);
#else
MAP(flows, LRU_HASH, struct flow_key, struct flow, 65536);
MAP(loads, ARRAY, __u32, struct load, SERVICES_MAX *NODES_MAX);
MAP(assigned, ARRAY, __u32, __u64, SERVICES_MAX *NODES_MAX);
MAP(sources, LRU_HASH, struct address, struct rate, 65536);
MAP(total, ARRAY, __u32, struct rate, 1);
MAP_FLAGS(networks, LPM_TRIE, struct network_key, __u32, 65536, BPF_F_NO_PREALLOC);
RING(events, 1 << 20);
#endif
