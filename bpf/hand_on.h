/* The node's second chance: a packet in the middle of a connection that this
 * node does not have goes on to the others of the row, one of which may have it.
 * So does a SYN where nobody listens: the node's process has died, and
 * dispatchers do not know it yet.
 *
 * Read `hand_on` first. Nodes are visited in the order of their indexes: it is
 * the same in each table, so that a packet passes no owner by while one machine
 * has a later table than another. Every hop costs the packet one of its TTL and
 * leads to a greater index, so it ends: at an owner, or at a kernel that refuses
 * it. Nothing is dropped here that the kernel would judge as well.
 *
 * A connection that is handed off is in `moves`, which comes first: its packets are
 * dropped while nobody may take them, and then go to the node that has it.
 *
 * Who includes this gives what dispatch.h asks for but `resize`, and
 *   has_socket(context, packet, is_error)  whether the flow lives here, or may
 *                                         begin here
 *   ensure_rst(context, packet)            makes the kernel reply with RST, not with
 *                                         the ACK of a TIME_WAIT entry
 */
#pragma once

#include "answer.h"
#include "count.h"
#include "icmp.h"

/* The node that comes next, for a packet that has just come into the row or
 * that a node before us has handed on. */
GLOBAL int next_of(const struct row *row, __u32 own, int is_handed_on)
{
	__u16 next = NO_NODE;

	if (!row)
		return NO_NODE;
	for (int i = 0; i < ROW_NODES; i++) {
		__u16 index = row->node[i];
		const struct node *node;

		if (index >= next || index == own || (is_handed_on && index < own))
			continue;
		node = node_at(index);
		if (node && node->state != NODE_DOWN)
			next = index;
	}
	return next;
}

INLINE int is_last_hop(const struct frame *frame, const struct packet *packet)
{
	const __u8 *ip = frame->data + packet->ip_at;

	if (ip + IPV4_BYTES > frame->end)
		return 1;
	if (packet->is_ipv4)
		return ((const struct ipv4 *)ip)->ttl <= 1;
	return ((const struct ipv6 *)ip)->hop_limit <= 1;
}

/* Whether the node that a connection was moved to can have it. A node whose frame
 * this is has just said that it has not: so two nodes that point at each other
 * end at a kernel that refuses. Longer circles end by TTL. */
INLINE int is_receiver(const struct frame *frame, const struct settings *settings,
		       const struct move *move, const struct node *node)
{
	const struct ethernet *ethernet = (const void *)frame->data;

	return node && node->state != NODE_DOWN && !node->is_local &&
	       move->node != settings->own_node && !is_same_mac(&ethernet->from, &node->mac);
}

/* What handing off has made of this packet's connection; CLEAN if nothing. One
 * whose receiver is gone is lost, and its packets are as those of any that no
 * node has. A SYN begins another one, whose packets must stay where it goes. */
INLINE __u32 follow_move(const struct frame *frame, const struct packet *packet,
			 const struct settings *settings, struct way *way)
{
	const struct ends *ends = packet->ends;
	struct move_key key = { ends->from.client, ends->to.vip, ends->from.port, ends->to.port };
	struct move *move = bpf_map_lookup_elem(&moves, &key);
	struct node *node;

	if (!move)
		return CLEAN;
	if (move->state == MOVE_BLOCKED)
		return NODE_BLOCKED;
	node = node_at(move->node);
	if (!is_receiver(frame, settings, move, node)) {
		if (packet->opens)
			bpf_map_delete_elem(&moves, &key);
		return CLEAN;
	}
	if (is_last_hop(frame, packet))
		return DROP_LOOP;
	move->used_ns = bpf_ktime_get_coarse_ns();
	way->node = node;
	way->node_index = move->node;
	return NODE_MOVED;
}

INLINE __u32 hand_flow_on(const struct frame *frame, const struct packet *packet,
			  const struct settings *settings, const struct service *service,
			  struct way *way)
{
	const struct ethernet *ethernet = (const void *)frame->data;
	const __u32 *steerer = bpf_map_lookup_elem(&steerers, &ethernet->from);
	const struct row *row = row_of(&packet->ends->from, service, settings->hash_seed);

	if (!row)
		return NODE_LAST;
	way->node_index =
		next_of(row, settings->own_node, steerer && *steerer == STEERER_NODE);
	way->node = node_at(way->node_index);
	if (!way->node)
		return NODE_LAST;
	if (is_last_hop(frame, packet)) {
		way->node = 0;
		return DROP_LOOP;
	}
	return NODE_HAND_ON;
}

/* Whose packet this is; of an ICMP error, that of the flow that it is about. */
INLINE __u32 hand_on(context *context, const struct frame *frame, struct packet *packet,
		     const struct settings *settings, struct way *way)
{
	const struct ethernet *ethernet = (const void *)frame->data;
	const struct service *service = 0;
	int is_error = 0;
	__u32 verdict;

	if (read_link(frame, packet) != CLEAN)
		return PASS_NOT_IP;
	if (!is_same_mac(&ethernet->to, &settings->own_mac))
		return PASS_NOT_VIP;
	if (read_addresses(frame, packet) != CLEAN)
		return PASS_NOT_IP;
	if (!bpf_map_lookup_elem(&vips, &packet->ends->to.vip))
		return PASS_NOT_VIP;
	if (read_transport(frame, packet) != CLEAN)
		return PASS_NO_SERVICE;
	if (icmp_kind(frame, packet) == ICMP_ERROR) {
		is_error = 1;
		if (read_quoted(frame, packet) != CLEAN)
			return PASS_NO_SERVICE;
	}
	if (is_ported(packet->ends->to.protocol))
		service = bpf_map_lookup_elem(&services, &packet->ends->to);
	if (!service)
		return PASS_NO_SERVICE;
	way->service = packet->ends->from.service = service->id;
	/* UDP has no connections. */
	if (packet->ends->to.protocol != PROTOCOL_TCP)
		return NODE_OWN;
	if (settings->flags & SETTING_MOVES) {
		__u32 moved = follow_move(frame, packet, settings, way);

		if (moved != CLEAN)
			return moved;
	}
	if (has_socket(context, packet, is_error))
		return NODE_OWN;
	verdict = hand_flow_on(frame, packet, settings, service, way);
	if (verdict == NODE_LAST && !is_error) /* nothing replies to an error */
		ensure_rst(context, packet);
	return verdict;
}

/* One hop less to live, and off to the next node. */
INLINE int pass_on(struct frame *frame, const struct packet *packet,
		   const struct settings *settings, const struct node *node)
{
	__u8 *ip = frame->data + packet->ip_at;

	if (ip + IPV4_BYTES > frame->end)
		return DO_DROP;
	if (packet->is_ipv4)
		set_ttl((struct ipv4 *)ip, ((struct ipv4 *)ip)->ttl - 1);
	else
		((struct ipv6 *)ip)->hop_limit--;
	address_frame(frame->data, &settings->own_mac, &node->mac);
	return transmit(node->device_index, settings);
}

INLINE int serve(context *context)
{
	struct frame frame = {};
	struct ends ends = {};
	struct packet packet = { .ends = &ends };
	struct way way = NO_WAY;
	__u32 zero = 0, verdict;
	const struct settings *settings_now = bpf_map_lookup_elem(&settings, &zero);

	if (!settings_now)
		return DO_PASS;
	read_frame(context, &frame);
	verdict = hand_on(context, &frame, &packet, settings_now, &way);
	count_all(verdict, &way, frame.length);
	if (verdict == DROP_LOOP || verdict == NODE_BLOCKED)
		return DO_DROP;
	if (verdict != NODE_HAND_ON && verdict != NODE_MOVED)
		return DO_PASS;
	return pass_on(&frame, &packet, settings_now, way.node);
}
