/* The dispatcher's program, whatever it is attached to.
 *
 * Who includes this says what a `context` is and gives
 *   read_frame(context, frame)    where the frame lies
 *   resize(context, frame, length) cuts it, and finds it again; 0 if it can't
 *   transmit(device_index, own)   out of a device; what the program returns
 *   DO_PASS, DO_DROP              what it returns else
 */
#pragma once

#include "answer.h"
#include "count.h"
#include "steer.h"

INLINE int tell_too_big(context *context, struct frame *frame, const struct packet *packet,
			const struct settings *settings, const struct node *node)
{
	struct quote quote;

	if (!take_quote(frame, packet, &quote) ||
	    !resize(context, frame, too_big_length(packet)) ||
	    !write_too_big(frame, packet, &quote, node->mtu))
		return DO_DROP;
	turn_frame(frame->data, &settings->own_mac);
	return transmit(settings->own_device_index, settings);
}

INLINE int act(context *context, struct frame *frame, const struct packet *packet,
	       const struct settings *settings, const struct way *way, __u32 verdict)
{
	switch (verdict) {
	case FORWARD_FLOW:
	case FORWARD_NEW:
	case FORWARD_ROW:
	case FORWARD_GUARDED:
	case FORWARD_ICMP:
		address_frame(frame->data, &settings->own_mac, &way->node->mac);
		return transmit(way->node->device_index, settings);
	case ANSWER_ECHO:
		if (!answer_echo(frame, packet, &settings->own_mac))
			return DO_DROP;
		return transmit(settings->own_device_index, settings);
	case ANSWER_TOO_BIG:
		return tell_too_big(context, frame, packet, settings, way->node);
	case DROP_TRUNCATED:
	case DROP_MALFORMED:
	case DROP_FRAGMENT:
	case DROP_OPTIONS:
	case DROP_DENIED:
	case DROP_LOOP:
		return DO_DROP;
	default:
		return DO_PASS;
	}
}

INLINE int dispatch(context *context)
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
	verdict = steer(&frame, &packet, settings_now, &way);
	count_all(verdict, &way, frame.length);
	return act(context, &frame, &packet, settings_now, &way, verdict);
}
