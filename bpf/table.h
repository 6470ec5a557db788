/* A service's table: the row of a flow, and the nodes of a row. */
#pragma once

#include "packet.h"

/* Where a packet goes, and what it counts for. */
struct way {
	struct node *node;
	__u16 node_index; /* NO_NODE: to none */
	__u16 service;    /* SERVICES_MAX: of none */
};

#define NO_WAY { 0, NO_NODE, SERVICES_MAX }

INLINE __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

INLINE __u64 two_words(const struct address *address, int first)
{
	return address->word[first] | (__u64)address->word[first + 1] << 32;
}

/* Which row a flow is of; with a secret seed, so that nobody can aim at one. */
INLINE __u32 slot_of(const struct flow_key *key, const struct service *service, __u64 seed)
{
	__u64 hash = mix(mix(seed, two_words(&key->client, 0)), two_words(&key->client, 2));

	if (!service->by_address)
		hash = mix(hash, key->port | (__u64)service->id << 16);
	return mix(hash, 0) % (1ull << 32) * ROWS >> 32;
}

/* Index of the flow's row in `rows`; -1, which is none, is for the verifier. Global, so
 * that it is verified once. */
GLOBAL int row_index_of(const struct flow_key *key, const struct service *service, __u64 seed)
{
	__u32 table;

	if (!key || !service)
		return -1;
	table = (__u16)(service->id + service->shift) * 2 + (service->half & 1);
	return table * ROWS + slot_of(key, service, seed);
}

INLINE const struct row *row_of(const struct flow_key *key, const struct service *service,
				__u64 seed)
{
	__u32 place = row_index_of(key, service, seed);

	return bpf_map_lookup_elem(&rows, &place);
}

INLINE struct node *node_at(__u32 index)
{
	return bpf_map_lookup_elem(&nodes, &index);
}

/* The first node of a row that is in that state or a better one. */
GLOBAL int first_of(const struct row *row, __u32 state)
{
	if (!row)
		return NO_NODE;
	for (int i = 0; i < ROW_NODES; i++) {
		const struct node *node = node_at(row->node[i]);

		if (node && node->state >= state)
			return row->node[i];
	}
	return NO_NODE;
}
