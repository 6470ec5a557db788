/* The dispatcher's program for tc, at ingress. */
#include "helpers.h"
#include "maps.h"

typedef struct __sk_buff context;

/* Let the next program look, too: the node's, or somebody else's. */
#define DO_PASS TC_ACT_UNSPEC
#define DO_DROP TC_ACT_SHOT

#include "packet.h"
#include "skb.h"

INLINE int resize(context *context, struct frame *frame, __u32 length)
{
	if (bpf_skb_change_tail(context, length, 0))
		return 0;
	read_frame(context, frame);
	return frame->data + sizeof(struct ethernet) <= frame->end;
}

INLINE int transmit(__u32 device_index, const struct settings *settings)
{
	return bpf_redirect(device_index, 0);
}

#include "dispatch.h"

SEC("classifier") int dispatch_tc(struct __sk_buff *context)
{
	return dispatch(context);
}

char program_license[] SEC("license") = "Dual MIT/GPL";
