/* What a dispatcher answers itself: echo requests, and packets that are too
 * big for the way to their node.
 */
#pragma once

#include "icmp.h"

#define ANSWER_TTL 64

/* Of what a too big packet carried, so much goes back: a TCP header, in which
 * its sender finds the connection and a sequence number to believe us by. */
#define QUOTED_BYTES 20u

struct too_big_ipv4 {
	struct ipv4 ip;
	struct icmp icmp;
	struct ipv4 quoted;
	__u8 rest[QUOTED_BYTES];
} WIRE;

struct too_big_ipv6 {
	struct ipv6 ip;
	struct icmp icmp;
	struct ipv6 quoted;
	__u8 rest[QUOTED_BYTES];
} WIRE;

INLINE void address_frame(__u8 *data, const struct mac *from, const struct mac *to)
{
	struct ethernet *ethernet = (void *)data;

	ethernet->to = *to;
	ethernet->from = *from;
}

INLINE void turn_frame(__u8 *data, const struct mac *own)
{
	struct ethernet *ethernet = (void *)data;
	struct mac sender = ethernet->from;

	address_frame(data, own, &sender);
}

/* Sum of 16-bit words, before folding (RFC 1071). */
INLINE __u32 sum_of(const void *bytes, __u32 length)
{
	const struct word {
		__u16 value;
	} WIRE *words = bytes;
	__u32 sum = 0;

	for (__u32 i = 0; i < length / 2; i++)
		sum += words[i].value;
	return sum;
}

INLINE __u16 checksum_of(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* A checksum after one 16-bit word of what it covers changed (RFC 1624). */
INLINE __u16 adjust_checksum(__u16 checksum, __u16 from, __u16 to)
{
	return checksum_of((__u16)~checksum + (__u16)~from + to);
}

INLINE void set_ttl(struct ipv4 *ip, __u8 ttl)
{
	/* The word of both, as it lies in memory. */
	__u16 protocol = (__u16)(ip->protocol << 8);

	ip->checksum = adjust_checksum(ip->checksum, ip->ttl | protocol, ttl | protocol);
	ip->ttl = ttl;
}

INLINE void turn_ipv4(struct ipv4 *ip)
{
	__be32 from = ip->from;

	ip->from = ip->to;
	ip->to = from;
	set_ttl(ip, ANSWER_TTL);
}

INLINE void turn_ipv6(struct ipv6 *ip)
{
	struct ipv6_address from = ip->from;

	ip->from = ip->to;
	ip->to = from;
	ip->hop_limit = ANSWER_TTL;
}

/* Makes the request its own reply; 0 if it can't. */
INLINE int answer_echo(struct frame *frame, const struct packet *packet, const struct mac *own)
{
	__u8 *ip = frame->data + packet->ip_at;
	struct icmp *icmp = (void *)(ip + ip_header_bytes(packet));
	__u8 request = packet->is_ipv4 ? ICMP_ECHO_REQUEST : ICMPV6_ECHO_REQUEST;
	__u8 reply = packet->is_ipv4 ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY;

	if ((__u8 *)(icmp + 1) > frame->end)
		return 0;
	turn_frame(frame->data, own);
	if (packet->is_ipv4)
		turn_ipv4((void *)ip);
	else
		turn_ipv6((void *)ip);
	icmp->type = reply;
	icmp->checksum = adjust_checksum(icmp->checksum, request, reply);
	return 1;
}

/* Length of the frame that tells the sender. */
INLINE __u32 too_big_length(const struct packet *packet)
{
	return packet->ip_at + (packet->is_ipv4 ? sizeof(struct too_big_ipv4) :
						  sizeof(struct too_big_ipv6));
}

/* The head of a packet, set aside while its frame is cut and written anew. */
struct quote {
	union {
		struct ipv4 ipv4;
		struct ipv6 ipv6;
		__u8 bytes[IPV6_BYTES + QUOTED_BYTES];
	};
};

INLINE int take_quote(const struct frame *frame, const struct packet *packet, struct quote *quote)
{
	const __u8 *ip = frame->data + packet->ip_at;

	if (packet->is_ipv4) {
		if (ip + IPV4_BYTES + QUOTED_BYTES > frame->end)
			return 0;
		__builtin_memcpy(quote, ip, IPV4_BYTES + QUOTED_BYTES);
	} else {
		if (ip + IPV6_BYTES + QUOTED_BYTES > frame->end)
			return 0;
		__builtin_memcpy(quote, ip, IPV6_BYTES + QUOTED_BYTES);
	}
	return 1;
}

INLINE void write_too_big_ipv4(struct too_big_ipv4 *answer, const struct quote *quote, __u16 mtu)
{
	struct ipv4 *ip = &answer->ip;
	struct icmp *icmp = &answer->icmp;

	__builtin_memcpy(&answer->quoted, quote, IPV4_BYTES + QUOTED_BYTES);
	__builtin_memset(answer, 0, IPV4_BYTES + ICMP_BYTES);
	ip->version_words = 0x45;
	ip->length = be16(sizeof(*answer));
	ip->ttl = ANSWER_TTL;
	ip->protocol = PROTOCOL_ICMP;
	ip->from = quote->ipv4.to;
	ip->to = quote->ipv4.from;
	ip->checksum = checksum_of(sum_of(ip, IPV4_BYTES));
	icmp->type = ICMP_UNREACHABLE;
	icmp->code = ICMP_TOO_BIG;
	icmp->mtu = be16(mtu);
	icmp->checksum = checksum_of(sum_of(icmp, sizeof(*answer) - IPV4_BYTES));
}

INLINE void write_too_big_ipv6(struct too_big_ipv6 *answer, const struct quote *quote, __u32 mtu)
{
	const __be16 length = be16(sizeof(*answer) - IPV6_BYTES);
	struct ipv6 *ip = &answer->ip;
	struct icmp *icmp = &answer->icmp;

	__builtin_memcpy(&answer->quoted, quote, IPV6_BYTES + QUOTED_BYTES);
	__builtin_memset(answer, 0, IPV6_BYTES + ICMP_BYTES);
	ip->version_class = 0x60;
	ip->payload_length = length;
	ip->next = PROTOCOL_ICMPV6;
	ip->hop_limit = ANSWER_TTL;
	ip->from = quote->ipv6.to;
	ip->to = quote->ipv6.from;
	icmp->type = ICMPV6_TOO_BIG;
	icmp->word = be16(mtu >> 16);
	icmp->mtu = be16(mtu);
	/* With the pseudo-header of RFC 8200, 8.1. */
	icmp->checksum = checksum_of(length + be16(PROTOCOL_ICMPV6) +
				     sum_of(&ip->from, 2 * sizeof(ip->from)) +
				     sum_of(icmp, sizeof(*answer) - IPV6_BYTES));
}

/* Writes the answer over a frame of `too_big_length`; 0 if it isn't. */
INLINE int write_too_big(const struct frame *frame, const struct packet *packet,
			 const struct quote *quote, __u32 mtu)
{
	__u8 *ip = frame->data + packet->ip_at;

	if (packet->is_ipv4) {
		if (ip + sizeof(struct too_big_ipv4) > frame->end)
			return 0;
		write_too_big_ipv4((void *)ip, quote, mtu); /* < what it took: 16 bits */
	} else {
		if (ip + sizeof(struct too_big_ipv6) > frame->end)
			return 0;
		write_too_big_ipv6((void *)ip, quote, mtu);
	}
	return 1;
}
