/* The dispatcher's decision: from a frame to a verdict and a node.
 *
 * Read `steer` first: its order is the order in which verdicts win. Nothing
 * here writes to the frame.
 */
#pragma once

#include "choice.h"
#include "icmp.h"

#define SECOND_NS 1000000000ull

GLOBAL int is_denied(const struct settings *settings, const struct address *client)
{
	__u32 *admission = 0;

	if (!settings || !client)
		return 1;
	if (!(settings->flags & (SETTING_NETWORKS | SETTING_ALLOW_LISTED)))
		return 0;
	if (settings->flags & SETTING_NETWORKS) {
		struct network_key key = { 128, *client };

		admission = bpf_map_lookup_elem(&networks, &key);
	}
	return admission ? *admission == ADMISSION_DENY : settings->flags & SETTING_ALLOW_LISTED;
}

/* Counts a new flow in its window of a second; whether that is one too many.
 * Two processors may begin a window at once: the guard is a bound, no meter. */
INLINE int is_over(struct rate *rate, __u64 now_ns, __u64 flows_max)
{
	if (now_ns - rate->window_began_ns >= SECOND_NS) {
		rate->window_began_ns = now_ns;
		rate->new_flows = 0;
	}
	if (rate->new_flows >= flows_max)
		return 1;
	__sync_fetch_and_add(&rate->new_flows, 1);
	return 0;
}

/* Whoever can make addresses up has all of a /64. */
INLINE struct address source_of(const struct address *client)
{
	struct address source = *client;

	if (source.word[0] || source.word[1] || source.word[2] != MAPPED_WORD)
		source.word[2] = source.word[3] = 0;
	return source;
}

INLINE int is_source_over(const struct address *client, __u64 now_ns, __u64 flows_max)
{
	struct address source = source_of(client);
	struct rate *rate = bpf_map_lookup_elem(&sources, &source), first = { now_ns, 1 };

	if (rate)
		return is_over(rate, now_ns, flows_max);
	bpf_map_update_elem(&sources, &source, &first, BPF_ANY);
	return 0;
}

/* The guard against floods of new flows. A source over its own rate does not
 * use up the rate of all; over the rate of all no source is noted, since a
 * flood of made-up sources would push the real ones out. */
GLOBAL int is_guarded(const struct settings *settings, const struct address *client)
{
	__u64 all_max, source_max, now_ns;
	__u32 zero = 0;
	struct rate *all;

	if (!settings || !client)
		return 1;
	all_max = settings->new_flows_max;
	source_max = settings->new_flows_per_source_max;
	if (!all_max && !source_max)
		return 0;
	now_ns = bpf_ktime_get_ns();
	all = bpf_map_lookup_elem(&total, &zero);
	if (!all)
		return 1;
	if (all_max && now_ns - all->window_began_ns < SECOND_NS && all->new_flows >= all_max)
		return 1;
	if (source_max && is_source_over(client, now_ns, source_max))
		return 1;
	return all_max && is_over(all, now_ns, all_max);
}

/* The last test before a packet leaves. */
INLINE __u32 deliver(const struct frame *frame, const struct packet *packet, const struct way *way,
		     __u32 verdict)
{
	__u32 mtu = way->node->mtu;

	if (way->node->is_local)
		return PASS_LOCAL;
	if (mtu && packet->ip_length > mtu && packet->ip_length > MTU_MIN && !frame->is_segmented)
		return ANSWER_TOO_BIG;
	return verdict;
}

/* Whether a packet begins another connection than the one that is in the flow table. */
INLINE int is_another(const struct flow *flow, const struct packet *packet)
{
	return packet->opens && packet->ends->to.protocol == PROTOCOL_TCP &&
	       flow->syn_sequence_low != packet->syn_sequence_low;
}

/* The owner that the flow table names, if it may have this packet. The SYN that has come
 * before must find it also while it drains: the client may have shaken hands with it, and
 * the connection may have moved there since. */
INLINE struct node *owner_of(const struct flow *flow, const struct packet *packet)
{
	__u32 index = flow->node;
	struct node *node = bpf_map_lookup_elem(&nodes, &index);

	if (!node || node->state == NODE_DOWN)
		return 0;
	if (is_another(flow, packet) && (node->state != NODE_UP || flow->flags & FLOW_CLOSING))
		return 0;
	return node;
}

/* FIN and RST may be late ones, of an earlier connection from the same port, and the
 * SYN of the present one may come again: it must find the node that has it. So they take
 * the owner from no packet but another SYN. */
INLINE __u32 follow(const struct frame *frame, const struct packet *packet, struct flow *flow,
		    struct way *way)
{
	way->node_index = flow->node;
	if (packet->opens && flow->syn_sequence_low != packet->syn_sequence_low)
		flow->syn_sequence_low = packet->syn_sequence_low;
	if (packet->tcp_flags & (TCP_FIN | TCP_RST))
		flow->flags |= FLOW_CLOSING;
	return deliver(frame, packet, way, FORWARD_FLOW);
}

/* Notes a new flow's owner, here and for who listens. */
INLINE void store(const struct frame *frame, const struct packet *packet,
		  const struct settings *settings, __u16 node)
{
	const struct ethernet *ethernet = (const void *)frame->data;
	struct flow flow = { node, 0, settings->generation, ethernet->from, packet->syn_sequence_low };
	struct flow_event event = { packet->ends->from, node, 0 };
	__u32 place = packet->ends->from.service * NODES_MAX + node;
	__u64 *flows_assigned = bpf_map_lookup_elem(&assigned, &place);

	if (flows_assigned)
		__sync_fetch_and_add(flows_assigned, 1);
	bpf_map_update_elem(&flows, &packet->ends->from, &flow, BPF_ANY);
	if (settings->flags & SETTING_STREAM)
		bpf_ringbuf_output(&events, &event, sizeof(event), 0);
}

/* A packet without a usable entry in the flow table. */
INLINE __u32 place(const struct frame *frame, const struct packet *packet,
		   const struct settings *settings, const struct service *service, struct way *way)
{
	const struct row *row;
	__u32 verdict;

	if (is_denied(settings, &packet->ends->from.client))
		return DROP_DENIED;
	row = row_of(&packet->ends->from, service, settings->hash_seed);
	if (!row)
		return PASS_NO_NODE;
	if (!packet->opens) {
		verdict = FORWARD_ROW;
		way->node_index = first_of(row, NODE_DRAINING);
	} else if (is_guarded(settings, &packet->ends->from.client)) {
		verdict = FORWARD_GUARDED;
		way->node_index = first_of(row, NODE_UP);
	} else {
		verdict = FORWARD_NEW;
		way->node_index = choice_of(row, service);
	}
	way->node = node_at(way->node_index);
	if (!way->node)
		return PASS_NO_NODE;
	if (verdict == FORWARD_NEW)
		store(frame, packet, settings, way->node_index);
	return deliver(frame, packet, way, verdict);
}

/* Checks an old flow anew after the networks or the steerers have changed. */
INLINE int is_admitted(const struct frame *frame, const struct packet *packet,
		       const struct settings *settings, struct flow *flow)
{
	const struct ethernet *ethernet = (const void *)frame->data;

	if (flow->generation == settings->generation)
		return 1;
	if (is_denied(settings, &packet->ends->from.client))
		return 0;
	flow->via = ethernet->from;
	flow->generation = settings->generation;
	return 1;
}

INLINE __u32 steer_flow(const struct frame *frame, const struct packet *packet,
			const struct settings *settings, const struct service *service,
			struct flow *flow, struct way *way)
{
	if (flow && way->node) {
		if (!is_admitted(frame, packet, settings, flow))
			return DROP_DENIED;
		return follow(frame, packet, flow, way);
	}
	return place(frame, packet, settings, service, way);
}

/* An error goes to the owner of the flow that it is about. Whoever sent it is
 * not asked for: routers are in nobody's list, and it opens nothing. */
INLINE __u32 steer_error(const struct frame *frame, struct packet *packet,
			 const struct settings *settings, struct way *way)
{
	__u32 fault = read_quoted(frame, packet);
	const struct service *service;
	struct flow *flow;
	const struct row *row;

	if (fault != CLEAN)
		return fault;
	service = bpf_map_lookup_elem(&services, &packet->ends->to);
	if (!service)
		return PASS_NO_SERVICE;
	way->service = packet->ends->from.service = service->id;
	flow = bpf_map_lookup_elem(&flows, &packet->ends->from);
	if (flow) {
		way->node = owner_of(flow, packet);
		way->node_index = flow->node;
	}
	if (!way->node) {
		row = row_of(&packet->ends->from, service, settings->hash_seed);
		way->node_index = row ? first_of(row, NODE_DRAINING) : NO_NODE;
		way->node = node_at(way->node_index);
	}
	if (!way->node)
		return PASS_NO_NODE;
	return way->node->is_local ? PASS_LOCAL : FORWARD_ICMP;
}

INLINE __u32 steer_other(const struct frame *frame, struct packet *packet,
			 const struct settings *settings, struct way *way)
{
	switch (icmp_kind(frame, packet)) {
	case ICMP_ECHO:
		return is_denied(settings, &packet->ends->from.client) ? DROP_DENIED : ANSWER_ECHO;
	case ICMP_ERROR:
		return steer_error(frame, packet, settings, way);
	case ICMP_SHORT:
		return DROP_MALFORMED;
	default:
		return PASS_NO_SERVICE;
	}
}

/* The short way of an established flow: all checks have been done. */
INLINE int is_cleared(const struct frame *frame, const struct settings *settings,
		      const struct flow *flow)
{
	const struct ethernet *ethernet = (const void *)frame->data;

	return flow->generation == settings->generation &&
	       is_same_mac(&ethernet->from, &flow->via);
}

INLINE __u32 steer(const struct frame *frame, struct packet *packet,
		   const struct settings *settings, struct way *way)
{
	const struct ethernet *ethernet = (const void *)frame->data;
	const struct service *service = 0;
	struct flow *flow = 0;
	__u32 verdict = read_link(frame, packet), fault, *steerer;

	if (verdict != CLEAN)
		return verdict;
	if (!is_same_mac(&ethernet->to, &settings->own_mac))
		return PASS_NOT_VIP;
	verdict = read_addresses(frame, packet);
	if (verdict != CLEAN)
		return verdict;
	fault = read_transport(frame, packet);
	if (fault == CLEAN && is_ported(packet->ends->to.protocol))
		service = bpf_map_lookup_elem(&services, &packet->ends->to);
	if (service) {
		packet->ends->from.service = service->id;
		flow = bpf_map_lookup_elem(&flows, &packet->ends->from);
	} else if (!bpf_map_lookup_elem(&vips, &packet->ends->to.vip)) {
		return PASS_NOT_VIP;
	}
	if (!flow || !is_cleared(frame, settings, flow)) {
		steerer = bpf_map_lookup_elem(&steerers, &ethernet->from);
		if (steerer)
			return *steerer == STEERER_SELF ? DROP_LOOP : PASS_STEERED;
	}
	if (fault != CLEAN)
		return fault;
	if (!service)
		return steer_other(frame, packet, settings, way);
	way->service = service->id;
	if (flow)
		way->node = owner_of(flow, packet);
	return steer_flow(frame, packet, settings, service, flow, way);
}
