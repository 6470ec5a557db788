/* The node's program, for tc at ingress. */
#define SKEP_NODE
#include "helpers.h"
#include "maps.h"

typedef struct __sk_buff context;

/* Let the next program look, too. */
#define DO_PASS TC_ACT_UNSPEC
#define DO_DROP TC_ACT_SHOT

#include "packet.h"
#include "skb.h"
#include "table.h"

INLINE int transmit(__u32 device_index, const struct settings *settings)
{
	return bpf_redirect(device_index, 0);
}

INLINE struct bpf_sock *find_socket(context *context, const struct packet *packet)
{
	const struct ends *ends = packet->ends;
	struct bpf_sock_tuple tuple = {};

	if (packet->is_ipv4) {
		tuple.ipv4.saddr = ends->from.client.word[3];
		tuple.ipv4.daddr = ends->to.vip.word[3];
		tuple.ipv4.sport = ends->from.port;
		tuple.ipv4.dport = ends->to.port;
		return bpf_skc_lookup_tcp(context, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS,
					  0);
	}
	__builtin_memcpy(tuple.ipv6.saddr, &ends->from.client, sizeof(struct address));
	__builtin_memcpy(tuple.ipv6.daddr, &ends->to.vip, sizeof(struct address));
	tuple.ipv6.sport = ends->from.port;
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

INLINE int lives_here(context *context, const struct frame *frame, const struct packet *packet,
		      int is_error)
{
	struct bpf_sock *socket = find_socket(context, packet);
	int is_found;

	if (!socket)
		return 0;
	is_found = socket->state != BPF_TCP_LISTEN || packet->opens ||
		   (!is_error && is_cookie(frame, packet, socket));
	bpf_sk_release(socket);
	return is_found;
}

/* A socket that becomes another (a request a connection, a connection one that
 * waits for the end) is in no list for a moment: inet_ehash_insert and
 * inet_twsk_hashdance of Linux take the old one out first. A packet that met
 * that moment on another processor went to nodes that refuse it. */
#define LOOKS_MAX 3

INLINE int has_socket(context *context, const struct frame *frame, const struct packet *packet,
		      int is_error)
{
	for (int look = 0; look < LOOKS_MAX; look++)
		if (lives_here(context, frame, packet, is_error))
			return 1;
	return 0;
}

#include "hand_on.h"

SEC("classifier") int node(struct __sk_buff *context)
{
	return serve(context);
}

char program_license[] SEC("license") = "Dual MIT/GPL";
