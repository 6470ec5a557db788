/* Reading ICMP: echo requests, and errors about flows of ours. */
#pragma once

#include "packet.h"

enum icmp_type {
	ICMP_ECHO_REPLY = 0,
	ICMP_UNREACHABLE = 3,
	ICMP_QUENCH = 4,
	ICMP_ECHO_REQUEST = 8,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER = 12,
};

enum icmp_unreachable_code { ICMP_TOO_BIG = 4 };

enum icmpv6_type {
	ICMPV6_UNREACHABLE = 1,
	ICMPV6_TOO_BIG = 2,
	ICMPV6_TIME_EXCEEDED = 3,
	ICMPV6_PARAMETER = 4,
	ICMPV6_ECHO_REQUEST = 128,
	ICMPV6_ECHO_REPLY = 129,
};

enum icmp_kind { ICMP_NONE, ICMP_SHORT, ICMP_ECHO, ICMP_ERROR };

INLINE enum icmp_kind icmpv4_kind(const struct icmp *icmp)
{
	switch (icmp->type) {
	case ICMP_ECHO_REQUEST:
		return icmp->code ? ICMP_NONE : ICMP_ECHO;
	case ICMP_UNREACHABLE:
	case ICMP_QUENCH:
	case ICMP_TIME_EXCEEDED:
	case ICMP_PARAMETER:
		return ICMP_ERROR;
	default:
		return ICMP_NONE;
	}
}

INLINE enum icmp_kind icmpv6_kind(const struct icmp *icmp)
{
	if (icmp->type == ICMPV6_ECHO_REQUEST)
		return icmp->code ? ICMP_NONE : ICMP_ECHO;
	if (icmp->type >= ICMPV6_UNREACHABLE && icmp->type <= ICMPV6_PARAMETER)
		return ICMP_ERROR;
	return ICMP_NONE;
}

INLINE enum icmp_kind icmp_kind(const struct frame *frame, const struct packet *packet)
{
	const struct icmp *icmp =
		(const void *)(frame->data + packet->ip_at + ip_header_bytes(packet));

	if (packet->ends->to.protocol != (packet->is_ipv4 ? PROTOCOL_ICMP : PROTOCOL_ICMPV6))
		return ICMP_NONE;
	if (packet->ip_length < ip_header_bytes(packet) + ICMP_BYTES ||
	    (const __u8 *)(icmp + 1) > frame->end)
		return ICMP_SHORT;
	return packet->is_ipv4 ? icmpv4_kind(icmp) : icmpv6_kind(icmp);
}

/* Addresses and protocol of the packet that an error quotes, and where its
 * ports are. It went from us to the client: what is `from` there is `to` here. */
INLINE __u32 read_quoted_ipv4(const struct frame *frame, struct packet *packet, __u32 *at)
{
	const struct ipv4 *ip = (const void *)(frame->data + *at);
	__u32 header;

	if ((const __u8 *)(ip + 1) > frame->end || *at + IPV4_BYTES > ip_end(packet))
		return DROP_TRUNCATED;
	header = (ip->version_words & 15) * 4;
	if (ip->version_words >> 4 != 4 || header < IPV4_BYTES)
		return DROP_MALFORMED;
	if (ip->fragment & be16(0x1fff))
		return DROP_FRAGMENT;
	map_ipv4(&packet->ends->from.client, ip->to);
	map_ipv4(&packet->ends->to.vip, ip->from);
	packet->ends->to.protocol = ip->protocol;
	*at += header;
	return CLEAN;
}

INLINE __u32 read_quoted_ipv6(const struct frame *frame, struct packet *packet, __u32 *at)
{
	const struct ipv6 *ip = (const void *)(frame->data + *at);

	if ((const __u8 *)(ip + 1) > frame->end || *at + IPV6_BYTES > ip_end(packet))
		return DROP_TRUNCATED;
	if (ip->version_class >> 4 != 6)
		return DROP_MALFORMED;
	copy_ipv6(&packet->ends->from.client, &ip->to);
	copy_ipv6(&packet->ends->to.vip, &ip->from);
	packet->ends->to.protocol = ip->next;
	*at += IPV6_BYTES;
	return CLEAN;
}

/* Makes `packet` the flow that an error is about, as from its client. */
INLINE __u32 read_quoted(const struct frame *frame, struct packet *packet)
{
	__u32 at = packet->ip_at + ip_header_bytes(packet) + ICMP_BYTES;
	__u32 fault = packet->is_ipv4 ? read_quoted_ipv4(frame, packet, &at) :
					read_quoted_ipv6(frame, packet, &at);
	const struct ports *ports = (const void *)(frame->data + at);

	if (fault != CLEAN)
		return fault;
	if (!is_ported(packet->ends->to.protocol))
		return PASS_NO_SERVICE;
	if ((const __u8 *)(ports + 1) > frame->end || at + sizeof(*ports) > ip_end(packet))
		return DROP_TRUNCATED;
	packet->ends->from.port = ports->to;
	packet->ends->to.port = ports->from;
	return CLEAN;
}
