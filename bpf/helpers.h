/* The few helpers of the kernel that the programs call, by their numbers in
 * linux/bpf.h; written down here so that a build needs clang and the kernel's
 * headers only.
 */
#pragma once

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* A global function: the kernel verifies it once, for all arguments, not anew
 * on each way that leads to a call. Pointers may be null for all it knows. */
#define GLOBAL __attribute__((noinline))

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u64 (*bpf_ktime_get_coarse_ns)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;
static long (*bpf_redirect)(__u32 device_index, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*bpf_ringbuf_output)(void *ring, void *data, __u64 size,
				  __u64 flags) = (void *)BPF_FUNC_ringbuf_output;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *packet,
				   int delta) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*bpf_skb_change_tail)(struct __sk_buff *packet, __u32 length,
				   __u64 flags) = (void *)BPF_FUNC_skb_change_tail;
static long (*bpf_skb_pull_data)(struct __sk_buff *packet,
				 __u32 length) = (void *)BPF_FUNC_skb_pull_data;
static struct bpf_sock *(*bpf_skc_lookup_tcp)(void *packet, struct bpf_sock_tuple *tuple,
					      __u32 tuple_size, __u64 namespace,
					      __u64 flags) = (void *)BPF_FUNC_skc_lookup_tcp;
static long (*bpf_sk_assign)(void *packet, void *socket, __u64 flags) = (void *)BPF_FUNC_sk_assign;
static struct tcp_timewait_sock *(*bpf_skc_to_tcp_timewait_sock)(void *socket) =
	(void *)BPF_FUNC_skc_to_tcp_timewait_sock;
static long (*bpf_sk_release)(void *socket) = (void *)BPF_FUNC_sk_release;
static long (*bpf_tcp_check_syncookie)(void *socket, void *ip, __u32 ip_length, void *tcp,
				       __u32 tcp_length) = (void *)BPF_FUNC_tcp_check_syncookie;
