/* What the packet programs and their loader share: maps and their values.
 *
 * Mirrored by crates/edge/datapath/src/abi.rs and modelled by bpf/steer;
 * words and limits are those of crates/base/wire/src/steer.rs.
 * Numbers are in the order of this machine unless they are called `be`.
 * IPv4 addresses are mapped: ::ffff:a.b.c.d.
 */
#pragma once

#include <linux/types.h>

#define ROWS 65537u
#define ROW_NODES 8
#define CHOICES_MAX 4
#define NODES_MAX 1024
#define SERVICES_MAX 64
#define NO_NODE 0xffff
#define MOVES_MAX 65536u

enum verdict {
	PASS_NOT_IP,
	PASS_NOT_VIP,
	PASS_NO_SERVICE,
	PASS_NO_NODE,
	PASS_LOCAL,
	PASS_STEERED,
	FORWARD_FLOW,
	FORWARD_NEW,
	FORWARD_ROW,
	FORWARD_GUARDED,
	FORWARD_ICMP,
	ANSWER_ECHO,
	ANSWER_TOO_BIG,
	DROP_TRUNCATED,
	DROP_MALFORMED,
	DROP_FRAGMENT,
	DROP_OPTIONS,
	DROP_DENIED,
	DROP_LOOP,
	NODE_OWN,
	NODE_HAND_ON,
	NODE_LAST,
	NODE_BLOCKED,
	NODE_MOVED,
	VERDICTS,
};

struct address { __u32 word[4]; };

struct mac { __u8 byte[6]; };

/* vips: HASH address -> __u32 (0) */

/* services: HASH */
struct service_key {
	struct address vip;
	__be16 port;
	__u8 protocol;
	__u8 zero;
};

enum measure { MEASURE_FIRST, MEASURE_TURNS, MEASURE_LOAD };

struct service {
	__u16 id;
	__u8 choices;
	__u8 measure;
	__u8 by_address;
	__u8 half; /* which of its two tables counts: swapped whole */
	__u16 shift;
};

/* rows: ARRAY; row r of table half h of service s is at (p * 2 + h) * ROWS + r,
 * p = s.id + s.shift: ids are the cluster's, places are this machine's */
struct row { __u16 node[ROW_NODES]; };

/* nodes: ARRAY of NODES_MAX */
enum node_state { NODE_DOWN, NODE_DRAINING, NODE_UP };

struct node {
	struct mac mac;
	__u8 state;
	__u8 is_local;
	__u32 device_index;
	__u32 mtu; /* largest IP packet; 0 is no limit */
};

/* steerers: HASH of MAC (6 bytes) -> __u32 enum steerer: the other dispatchers
 * and the nodes, what they send to a virtual address has been steered already;
 * and this machine, which would otherwise steer in circles */
enum steerer { STEERER_DISPATCHER = 1, STEERER_NODE = 2, STEERER_SELF = 3 };

/* assigned: ARRAY of __u64, flows given to a node, ever; node n of service s
 * is at s * NODES_MAX + n. Only the program writes it, so that what the loader
 * writes to `loads` loses no count. */

/* loads: ARRAY, places as in `assigned`; only the loader writes it */
struct load {
	__u64 reported;
	__u64 assigned_at_report; /* value of `assigned` when `reported` came */
	__u64 assigned_at_table;  /* value of `assigned` when the table came */
	__u32 weight;
	__u32 zero;
};

/* flows: LRU_HASH */
struct flow_key {
	struct address client;
	__be16 port;
	__u16 service;
};

enum flow_flag { FLOW_CLOSING = 1 }; /* a FIN or RST was seen: another SYN begins anew */

/* While `generation` is that of the settings, a packet of this flow with the
 * source MAC `via` needs no look into `steerers` and `networks`. */
struct flow {
	__u16 node;
	__u16 flags;
	__u32 generation; /* of the checks that let it in */
	struct mac via;
	__u16 syn_sequence_low; /* of the last SYN: see `packet`; 0 if none was seen */
};

/* moves: HASH, node program: connections that are being handed off, or have been.
 * By both ends, since ids of services may change with a table. */
struct move_key {
	struct address client, vip;
	__be16 client_port, vip_port;
};

enum move_state {
	MOVE_BLOCKED = 1,  /* nobody takes its packets now */
	MOVE_REDIRECT = 2, /* `node` has it */
};

/* The loader replaces the whole entry; of `used_ns` the program writes a
 * redirect's. */
struct move {
	__u16 state;
	__u16 node; /* of a blocked one: where it was redirected to before, or NO_NODE */
	__u32 zero;
	__u64 used_ns; /* when a packet of it came last, or when it was written; CLOCK_MONOTONIC */
};

/* sources: LRU_HASH address (of IPv6 the first 64 bits) -> rate; total: ARRAY
 * of 1 */
struct rate {
	__u64 window_began_ns;
	__u64 new_flows;
};

/* networks: LPM_TRIE -> __u32 enum admission */
struct network_key {
	__u32 prefix_bits; /* of the mapped address: 96 more for IPv4 */
	struct address address;
};

enum admission { ADMISSION_ALLOW = 1, ADMISSION_DENY = 2 };

/* settings: ARRAY of 1 */
enum setting_flag {
	SETTING_NETWORKS = 1,     /* `networks` has entries: look */
	SETTING_ALLOW_LISTED = 2, /* who is in no network is denied */
	SETTING_STREAM = 4,       /* report new flows to `events` */
	SETTING_MOVES = 8,        /* node program: connections are handed off, look into `moves` */
};

struct settings {
	__u64 hash_seed;
	__u64 new_flows_max;            /* in a second, in total; 0 is no limit */
	__u64 new_flows_per_source_max; /* in a second; 0 is no limit */
	__u32 generation; /* another whenever `networks` or `steerers` change */
	__u32 flags;
	__u32 own_device_index;
	__u16 own_node; /* node program: which node this is */
	struct mac own_mac;
	__u32 zero;
};

/* verdicts: PERCPU_ARRAY of VERDICTS; service_counts: of SERVICES_MAX;
 * node_counts: of NODES_MAX */
struct count {
	__u64 packets;
	__u64 bytes;
};

/* events: RINGBUF */
struct flow_event {
	struct flow_key key;
	__u16 node;
	__u16 zero;
};
