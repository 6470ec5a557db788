/* Reading a frame: link layer, addresses, transport.
 *
 * Nothing is believed that has not been compared with what is there. Faults
 * are verdicts; CLEAN is none. Faults above the addresses are only acted on
 * when the packet turns out to be for a virtual address: what else passes
 * through this machine is the kernel's to judge.
 */
#pragma once

#include "abi.h"

#define CLEAN VERDICTS

/* Bytes that must lie linear. Of what comes in, two tags, IPv6, ICMPv6, and of
 * the packet that an error is about the longest header and both ports; of what
 * goes out, two tags and an answer by IPv6 (130 bytes). Rounded up. */
#define HEADERS_MAX 144u

#define TAGS_MAX 2

/* Every IPv4 host takes this much (RFC 791, 3.1): no node's limit is lower. */
#define MTU_MIN 576u

#define MAC_BYTES 6

#define IPV4_BYTES 20u
#define IPV6_BYTES 40u
#define TCP_BYTES 20u
#define UDP_BYTES 8u
#define ICMP_BYTES 8u

/* Headers lie at any address. The kernel's machine for programs minds that
 * less than the byte-wise access which `packed` asks for. */
#ifdef SKEP_HOST
#define WIRE __attribute__((packed))
#else
#define WIRE
#endif

#define be16(number) ((__be16)__builtin_bswap16(number))
#define be32(number) ((__be32)__builtin_bswap32(number))

struct ethernet {
	struct mac to, from;
	__be16 type;
} WIRE;

struct tag {
	__be16 control, type;
} WIRE;

struct ipv4 {
	__u8 version_words, service_class;
	__be16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__be32 from, to;
} WIRE;

struct ipv6_address {
	__be32 word[4];
} WIRE;

struct ipv6 {
	__u8 version_class, class_label;
	__be16 label;
	__be16 payload_length;
	__u8 next, hop_limit;
	struct ipv6_address from, to;
} WIRE;

struct ports {
	__be16 from, to;
} WIRE;

struct tcp {
	struct ports ports;
	__be32 sequence, acknowledged;
	__u8 words, flags;
	__be16 window;
	__u16 checksum;
	__be16 urgent;
} WIRE;

struct udp {
	struct ports ports;
	__be16 length;
	__u16 checksum;
} WIRE;

struct icmp {
	__u8 type, code;
	__u16 checksum;
	__be16 word, mtu;
} WIRE;

enum ethertype { TYPE_IPV4 = 0x0800, TYPE_TAG = 0x8100, TYPE_IPV6 = 0x86dd, TYPE_TAG_OUTER = 0x88a8 };

enum protocol {
	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_AUTHENTICATION = 51,
	PROTOCOL_ICMPV6 = 58,
	PROTOCOL_DESTINATION = 60,
	PROTOCOL_MOBILITY = 135,
	PROTOCOL_HIP = 139,
	PROTOCOL_SHIM6 = 140,
};

enum tcp_flag { TCP_FIN = 1, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };

#define IPV4_FRAGMENT be16(0x3fff) /* more to come, or not the first */
#define MAPPED_WORD be32(0xffff)

struct frame {
	__u8 *data, *end;  /* what lies linear */
	__u32 length;      /* of all */
	__u8 is_segmented; /* a large one that leaves as several small ones */
};

/* Both ends of a flow, as keys. */
struct ends {
	struct service_key to;
	struct flow_key from;
};

/* The keys stand apart, since look-ups take their address: so the compiler
 * holds the rest in registers, where the verifier follows it. */
struct packet {
	struct ends *ends;
	__u32 ip_at; /* in the frame */
	__u8 is_ipv4;
	__u8 tcp_flags;
	__u8 opens; /* the first of a flow, or, of UDP, maybe the first */
	__u16 syn_sequence_low; /* of a SYN: the low half of its sequence number, by which it is known when it comes again */
	__u32 ip_length;
};

INLINE __u32 ip_header_bytes(const struct packet *packet)
{
	return packet->is_ipv4 ? IPV4_BYTES : IPV6_BYTES;
}

/* Where the packet ends in its frame; padding may follow. */
INLINE __u32 ip_end(const struct packet *packet)
{
	return packet->ip_at + packet->ip_length;
}

INLINE int is_tag(__be16 type)
{
	return type == be16(TYPE_TAG) || type == be16(TYPE_TAG_OUTER);
}

INLINE int is_ported(__u8 protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP;
}

INLINE int is_same_mac(const struct mac *one, const struct mac *other)
{
	struct words {
		__u32 head;
		__u16 tail;
	} WIRE;
	const struct words *a = (const struct words *)one, *b = (const struct words *)other;

	return a->head == b->head && a->tail == b->tail;
}

INLINE void map_ipv4(struct address *address, __be32 ipv4)
{
	address->word[0] = 0;
	address->word[1] = 0;
	address->word[2] = MAPPED_WORD;
	address->word[3] = ipv4;
}

INLINE void copy_ipv6(struct address *address, const struct ipv6_address *ipv6)
{
	for (int i = 0; i < 4; i++)
		address->word[i] = ipv6->word[i];
}

/* Ethernet and at most TAGS_MAX tags: where IP begins, and which. */
INLINE __u32 read_link(const struct frame *frame, struct packet *packet)
{
	const struct ethernet *ethernet = (const void *)frame->data;
	__u32 at = sizeof(*ethernet);
	__be16 type;

	if (frame->data + at > frame->end)
		return DROP_TRUNCATED;
	type = ethernet->type;
	for (int i = 0; i < TAGS_MAX && is_tag(type); i++) {
		const struct tag *tag = (const void *)(frame->data + at);

		at += sizeof(*tag);
		if (frame->data + at > frame->end)
			return DROP_TRUNCATED;
		type = tag->type;
	}
	if (type != be16(TYPE_IPV4) && type != be16(TYPE_IPV6))
		return PASS_NOT_IP;
	packet->is_ipv4 = type == be16(TYPE_IPV4);
	packet->ip_at = at;
	return CLEAN;
}

INLINE __u32 read_ipv4_addresses(const struct frame *frame, struct packet *packet)
{
	const struct ipv4 *ip = (const void *)(frame->data + packet->ip_at);

	if ((const __u8 *)(ip + 1) > frame->end)
		return DROP_TRUNCATED;
	if (ip->version_words >> 4 != 4)
		return PASS_NOT_IP;
	map_ipv4(&packet->ends->from.client, ip->from);
	map_ipv4(&packet->ends->to.vip, ip->to);
	packet->ends->to.protocol = ip->protocol;
	return CLEAN;
}

INLINE __u32 read_ipv6_addresses(const struct frame *frame, struct packet *packet)
{
	const struct ipv6 *ip = (const void *)(frame->data + packet->ip_at);

	if ((const __u8 *)(ip + 1) > frame->end)
		return DROP_TRUNCATED;
	if (ip->version_class >> 4 != 6)
		return PASS_NOT_IP;
	copy_ipv6(&packet->ends->from.client, &ip->from);
	copy_ipv6(&packet->ends->to.vip, &ip->to);
	packet->ends->to.protocol = ip->next;
	return CLEAN;
}

INLINE __u32 read_addresses(const struct frame *frame, struct packet *packet)
{
	return packet->is_ipv4 ? read_ipv4_addresses(frame, packet) :
				 read_ipv6_addresses(frame, packet);
}

INLINE __u32 check_ipv4(const struct frame *frame, struct packet *packet)
{
	const struct ipv4 *ip = (const void *)(frame->data + packet->ip_at);
	__u32 room = frame->length - packet->ip_at, header, length;

	if ((const __u8 *)(ip + 1) > frame->end)
		return DROP_TRUNCATED;
	header = (ip->version_words & 15) * 4;
	length = be16(ip->length);
	/* More than 64 KiB in one (BIG TCP): the length does not fit and is 0. */
	if (!length && frame->is_segmented)
		length = room;
	if (header < IPV4_BYTES || length < header)
		return DROP_MALFORMED;
	if (length > room)
		return DROP_TRUNCATED;
	if (ip->fragment & IPV4_FRAGMENT)
		return DROP_FRAGMENT;
	if (header != IPV4_BYTES)
		return DROP_OPTIONS;
	packet->ip_length = length;
	return CLEAN;
}

INLINE int is_extension(__u8 protocol)
{
	switch (protocol) {
	case PROTOCOL_HOP_BY_HOP:
	case PROTOCOL_ROUTING:
	case PROTOCOL_AUTHENTICATION:
	case PROTOCOL_DESTINATION:
	case PROTOCOL_MOBILITY:
	case PROTOCOL_HIP:
	case PROTOCOL_SHIM6:
		return 1;
	default:
		return 0;
	}
}

INLINE __u32 check_ipv6(const struct frame *frame, struct packet *packet)
{
	const struct ipv6 *ip = (const void *)(frame->data + packet->ip_at);
	__u32 room = frame->length - packet->ip_at, length;

	if ((const __u8 *)(ip + 1) > frame->end)
		return DROP_TRUNCATED;
	length = IPV6_BYTES + be16(ip->payload_length);
	if (length > room)
		return DROP_TRUNCATED;
	if (ip->next == PROTOCOL_FRAGMENT)
		return DROP_FRAGMENT;
	if (is_extension(ip->next))
		return DROP_OPTIONS;
	packet->ip_length = length;
	return CLEAN;
}

INLINE __u32 read_tcp(const struct frame *frame, struct packet *packet, __u32 room)
{
	const struct tcp *tcp =
		(const void *)(frame->data + packet->ip_at + ip_header_bytes(packet));
	__u32 header;

	if (room < TCP_BYTES)
		return DROP_MALFORMED;
	if ((const __u8 *)(tcp + 1) > frame->end)
		return DROP_TRUNCATED;
	header = (tcp->words >> 4) * 4;
	if (header < TCP_BYTES || header > room)
		return DROP_MALFORMED;
	if (tcp->flags & TCP_SYN && tcp->flags & (TCP_FIN | TCP_RST))
		return DROP_MALFORMED;
	packet->ends->from.port = tcp->ports.from;
	packet->ends->to.port = tcp->ports.to;
	packet->tcp_flags = tcp->flags;
	packet->opens = (tcp->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	if (packet->opens)
		packet->syn_sequence_low = be32(tcp->sequence);
	return CLEAN;
}

INLINE __u32 read_udp(const struct frame *frame, struct packet *packet, __u32 room)
{
	const struct udp *udp =
		(const void *)(frame->data + packet->ip_at + ip_header_bytes(packet));
	__u32 length;

	if (room < UDP_BYTES)
		return DROP_MALFORMED;
	if ((const __u8 *)(udp + 1) > frame->end)
		return DROP_TRUNCATED;
	length = be16(udp->length);
	if ((length < UDP_BYTES || length > room) && !frame->is_segmented)
		return DROP_MALFORMED;
	packet->ends->from.port = udp->ports.from;
	packet->ends->to.port = udp->ports.to;
	packet->opens = 1;
	return CLEAN;
}

/* The rest of the IP header, then ports and flags. */
INLINE __u32 read_transport(const struct frame *frame, struct packet *packet)
{
	__u32 fault = packet->is_ipv4 ? check_ipv4(frame, packet) : check_ipv6(frame, packet);
	__u32 room;

	if (fault != CLEAN)
		return fault;
	room = packet->ip_length - ip_header_bytes(packet);
	if (packet->ends->to.protocol == PROTOCOL_TCP)
		return read_tcp(frame, packet, room);
	if (packet->ends->to.protocol == PROTOCOL_UDP)
		return read_udp(frame, packet, room);
	return CLEAN;
}
