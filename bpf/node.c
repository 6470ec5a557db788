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

#include "socket.h"
#include "hand_on.h"

SEC("classifier") int node(struct __sk_buff *context)
{
	return serve(context);
}

char program_license[] SEC("license") = "Dual MIT/GPL";
