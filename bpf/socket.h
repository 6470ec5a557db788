/* Whether a flow's socket is this machine's; read `has_socket` first. */
#pragma once

#include "packet.h"

INLINE struct bpf_sock *find_socket(context *context, const struct packet *packet,
				    __be16 client_port)
{
	const struct ends *ends = packet->ends;
	struct bpf_sock_tuple tuple = {};

	if (packet->is_ipv4) {
		tuple.ipv4.saddr = ends->from.client.word[3];
		tuple.ipv4.daddr = ends->to.vip.word[3];
		tuple.ipv4.sport = client_port;
		tuple.ipv4.dport = ends->to.port;
		return bpf_skc_lookup_tcp(context, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS,
					  0);
	}
	__builtin_memcpy(tuple.ipv6.saddr, &ends->from.client, sizeof(struct address));
	__builtin_memcpy(tuple.ipv6.daddr, &ends->to.vip, sizeof(struct address));
	tuple.ipv6.sport = client_port;
	tuple.ipv6.dport = ends->to.port;
	return bpf_skc_lookup_tcp(context, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* Whether this ends a handshake for which we sent a cookie and kept nothing. */
INLINE int is_cookie(const struct frame *frame, const struct packet *packet,
		     struct bpf_sock *listener)
{
	__u8 *ip = frame->data + packet->ip_at;
	__u32 header = ip_header_bytes(packet);

	if (ip + header + TCP_BYTES > frame->end)
		return 0;
	return !bpf_tcp_check_syncookie(listener, ip, header, ip + header, TCP_BYTES);
}

/* Of the kernel; the loader finds where fields lie (CO-RE). */
#define OF_KERNEL __attribute__((preserve_access_index))

struct sock_common {
	__u32 skc_tw_rcv_nxt, skc_tw_snd_nxt;
} OF_KERNEL;

struct inet_timewait_sock {
	struct sock_common __tw_common;
	__u8 tw_substate;
} OF_KERNEL;

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
} OF_KERNEL;

/* How far from its end the packets of a connection may be: bytes sent once more,
 * and, while the client has not closed, bytes behind a gap. */
#define LATE_BYTES (1u << 20)

/* Whether a packet is of the connection whose end the kernel remembers for a
 * minute, and not of a later one from the same port, which another node has: the
 * kernel would answer each packet of that one by an ACK, and it would hang. */
INLINE int is_late(const struct frame *frame, const struct packet *packet,
		   struct bpf_sock *ended)
{
	const struct tcp *tcp =
		(const void *)(frame->data + packet->ip_at + ip_header_bytes(packet));
	const struct tcp_timewait_sock *last = bpf_skc_to_tcp_timewait_sock(ended);
	const struct sock_common *end;
	__u32 ahead_max, ahead;

	if (!last || (const __u8 *)(tcp + 1) > frame->end)
		return 1;
	end = &last->tw_sk.__tw_common;
	if (packet->tcp_flags & TCP_ACK &&
	    end->skc_tw_snd_nxt - be32(tcp->acknowledged) >= LATE_BYTES)
		return 0;
	ahead_max = last->tw_sk.tw_substate == BPF_TCP_FIN_WAIT2 ? LATE_BYTES : 0;
	ahead = be32(tcp->sequence) - end->skc_tw_rcv_nxt;
	return ahead <= ahead_max || -ahead < LATE_BYTES;
}

/* Whether what was found takes this packet. */
INLINE int takes(const struct frame *frame, const struct packet *packet, int is_error,
		 struct bpf_sock *socket)
{
	if (packet->opens || is_error)
		return packet->opens || socket->state != BPF_TCP_LISTEN;
	switch (socket->state) {
	case BPF_TCP_LISTEN:
		return is_cookie(frame, packet, socket);
	case BPF_TCP_TIME_WAIT:
		return is_late(frame, packet, socket);
	default:
		return 1;
	}
}

enum found {
	ABSENT,
	FOUND,
	MOVING, /* it was there, and becomes another */
};

/* The kernel looks the socket up once more, and would answer RST if the request
 * became a connection between our look and its own (see LOOKS_MAX). With the
 * request in hand it waits for the connection and takes that. */
INLINE enum found keep_request(context *context, struct bpf_sock *socket)
{
	return bpf_sk_assign(context, socket, 0) ? MOVING : FOUND;
}

/* Of a packet, what a look needs: arguments of global functions must not
 * contain pointers. */
struct sought {
	__u32 ip_at;
	__u8 is_ipv4, tcp_flags, opens, is_error;
};

/* Global, so that it is verified once, and not at each of LOOKS_MAX calls. The
 * first test is for the verifier. */
GLOBAL int look(context *context, struct ends *ends, const struct sought *sought)
{
	struct packet packet = { .ends = ends };
	struct frame frame = {};
	struct bpf_sock *socket;
	enum found found;

	if (!ends || !sought || sought->ip_at > HEADERS_MAX)
		return ABSENT;
	packet.ip_at = sought->ip_at;
	packet.is_ipv4 = sought->is_ipv4;
	packet.tcp_flags = sought->tcp_flags;
	packet.opens = sought->opens;
	frame.data = (void *)(long)context->data;
	frame.end = (void *)(long)context->data_end;
	socket = find_socket(context, &packet, ends->from.port);
	if (!socket)
		return ABSENT;
	found = takes(&frame, &packet, sought->is_error, socket) ? FOUND : ABSENT;
	if (socket->state == BPF_TCP_NEW_SYN_RECV && !sought->is_error)
		found = keep_request(context, socket);
	bpf_sk_release(socket);
	return found;
}

/* A socket that becomes another (a request a connection, a connection one that
 * waits for the end) is in no list for a moment: until Linux 6.19
 * inet_ehash_insert and inet_twsk_hashdance take the old one out first. A packet
 * that met that moment on another processor went to nodes that refuse it. */
#define LOOKS_MAX 4

INLINE int has_socket(context *context, const struct packet *packet, int is_error)
{
	const struct sought sought = { packet->ip_at, packet->is_ipv4, packet->tcp_flags,
				       packet->opens, is_error };
	int was_moving = 0;

	for (int looks = 0; looks < LOOKS_MAX; looks++) {
		enum found found = look(context, packet->ends, &sought);

		if (found == FOUND)
			return 1;
		was_moving |= found == MOVING;
	}
	return was_moving;
}

INLINE int is_time_wait(context *context, const struct packet *packet)
{
	struct bpf_sock *socket = find_socket(context, packet, packet->ends->from.port);
	int is_it;

	if (!socket)
		return 0;
	is_it = socket->state == BPF_TCP_TIME_WAIT;
	bpf_sk_release(socket);
	return is_it;
}

/* No node has the connection, and the kernel replies with RST, unless it has a
 * TIME_WAIT entry of an earlier one from the same port: that would reply to each
 * packet with an ACK. Then the listening socket gets the packet, and resets. */
INLINE void ensure_rst(context *context, const struct packet *packet)
{
	struct bpf_sock *listener;

	if (!is_time_wait(context, packet))
		return;
	/* Source port 0: no connection is found, but who listens. */
	listener = find_socket(context, packet, 0);
	if (!listener)
		return;
	if (listener->state == BPF_TCP_LISTEN)
		bpf_sk_assign(context, listener, 0);
	bpf_sk_release(listener);
}
