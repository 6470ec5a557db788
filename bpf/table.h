/* A service's table: the row of a flow, and the nodes of a row. */
#pragma once

#include "packet.h"

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

INLINE const struct row *row_of(const struct flow_key *key, const struct service *service,
				__u64 seed)
{
	__u32 place = (service->id * 2 + (service->half & 1)) * ROWS + slot_of(key, service, seed);

	return bpf_map_lookup_elem(&rows, &place);
}

INLINE struct node *node_at(__u32 index)
{
	return bpf_map_lookup_elem(&nodes, &index);
}

/* The first node of a row that is in that state or a better one. */
INLINE __u16 first_of(const struct row *row, __u8 state)
{
	for (int i = 0; i < ROW_NODES; i++) {
		const struct node *node = node_at(row->node[i]);

		if (node && node->state >= state)
			return row->node[i];
	}
	return NO_NODE;
}

struct cost {
	__u64 flows;
	__u32 weight;
};

/* What a node has already, and the flow that it would get. */
INLINE struct cost cost_of(__u16 node, const struct service *service)
{
	__u32 place = service->id * NODES_MAX + node;
	const struct load *load = bpf_map_lookup_elem(&loads, &place);
	const __u64 *flows_assigned = bpf_map_lookup_elem(&assigned, &place);
	struct cost cost = { 1, 0 };

	if (!load || !flows_assigned)
		return cost;
	if (service->measure == MEASURE_LOAD)
		cost.flows += load->reported + (*flows_assigned - load->assigned_at_report);
	else
		cost.flows += *flows_assigned - load->assigned_at_table;
	if (cost.flows >> 32)
		cost.flows = 0xffffffff; /* times a weight it still fits */
	cost.weight = load->weight;
	return cost;
}

/* The node that the policy takes for a new flow. */
INLINE __u16 choice_of(const struct row *row, const struct service *service)
{
	__u16 best = NO_NODE;
	struct cost best_cost = {};

	if (service->measure == MEASURE_FIRST)
		return first_of(row, NODE_UP);
	for (int i = 0; i < CHOICES_MAX; i++) {
		const struct node *node = node_at(row->node[i]);
		struct cost cost;

		if (i >= service->choices || !node || node->state != NODE_UP)
			continue;
		cost = cost_of(row->node[i], service);
		if (best == NO_NODE ||
		    cost.flows * best_cost.weight < best_cost.flows * cost.weight) {
			best = row->node[i];
			best_cost = cost;
		}
	}
	/* All candidates are gone and the next table is not there yet. */
	return best == NO_NODE ? first_of(row, NODE_UP) : best;
}
