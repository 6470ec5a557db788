/* A frame in the kernel's socket buffer, of which a part may lie elsewhere. */
#pragma once

#include <linux/pkt_cls.h>

#include "packet.h"

INLINE void read_frame(struct __sk_buff *context, struct frame *frame)
{
	__u32 length = context->len, wanted = length < HEADERS_MAX ? length : HEADERS_MAX;

	if (context->data_end - context->data < wanted)
		bpf_skb_pull_data(context, wanted);
	frame->data = (void *)(long)context->data;
	frame->end = (void *)(long)context->data_end;
	frame->length = length;
	frame->is_segmented = context->gso_segs > 1;
}
