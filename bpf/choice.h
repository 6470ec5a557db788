/* The policy's part: which of a row's candidates takes a new flow. */
#pragma once

#include "table.h"

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
GLOBAL int choice_of(const struct row *row, const struct service *service)
{
	__u16 best = NO_NODE;
	struct cost best_cost = {};

	if (!row || !service)
		return NO_NODE;
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
