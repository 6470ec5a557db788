/* The dispatcher's program for XDP. */
#include "helpers.h"
#include "maps.h"

typedef struct xdp_md context;

#define DO_PASS XDP_PASS
#define DO_DROP XDP_DROP

#include "packet.h"

INLINE void read_frame(context *context, struct frame *frame)
{
	frame->data = (void *)(long)context->data;
	frame->end = (void *)(long)context->data_end;
	frame->length = frame->end - frame->data;
}

INLINE int resize(context *context, struct frame *frame, __u32 length)
{
	if (bpf_xdp_adjust_tail(context, (int)length - (int)frame->length))
		return 0;
	read_frame(context, frame);
	return frame->data + sizeof(struct ethernet) <= frame->end;
}

INLINE int transmit(__u32 device_index, const struct settings *settings)
{
	if (device_index == settings->own_device_index)
		return XDP_TX;
	return bpf_redirect(device_index, 0);
}

#include "dispatch.h"

SEC("xdp") int dispatch_xdp(struct xdp_md *context)
{
	return dispatch(context);
}

char program_license[] SEC("license") = "Dual MIT/GPL";
