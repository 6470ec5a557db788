/* A packet program as a process: tables and frames in, verdicts and frames out.
 *
 * Built as the dispatcher's program or, with SKEP_NODE, as the node's; under
 * the address and undefined behaviour sanitizers. Every frame lies in a block
 * of its own of exactly its size, so that a read past its end is seen.
 *
 * Requests on standard input, numbers in the order of this machine:
 *   C                           clear all maps but rows
 *   S name key value            set an entry, or, of an array, those from key on
 *   P linear(4) now_ns(8) frame run the program; only `linear` bytes lie
 *                               linear, at least HEADERS_MAX
 *   D name                      what a map holds
 *   F                           send what was answered so far
 * Names, keys, values and frames are a length of four bytes and then bytes.
 * Answers: to P verdict(4) action(4) device(4) frame; to D key value until an
 * empty key. An array tells only what is not zero.
 */
#define SKEP_HOST
#include <linux/bpf.h>
#include <stdio.h>

#define INLINE static inline
#define GLOBAL static

#include "../abi.h"
#include "../maps.h"
#include "../packet.h"

enum action { DO_PASS, DO_DROP, DO_TRANSMIT };

typedef struct {
	__u8 *head, *rest; /* what lies linear, and what does not */
	__u32 head_bytes, rest_bytes;
} context;

static __u64 now_ns;
static __u32 device_of_last, verdict_of_last;
static struct count counted[VERDICTS]; /* before the last frame */

static __u64 bpf_ktime_get_ns(void)
{
	return now_ns;
}

static __u64 bpf_ktime_get_coarse_ns(void)
{
	return now_ns;
}

INLINE void read_frame(context *context, struct frame *frame)
{
	frame->data = context->head;
	frame->end = context->head + context->head_bytes;
	frame->length = context->head_bytes + context->rest_bytes;
}

INLINE int transmit(__u32 device_index, const struct settings *settings)
{
	(void)settings;
	device_of_last = device_index;
	return DO_TRANSMIT;
}

#ifdef SKEP_NODE

/* Connections of this node: both ends, and whether an error may ask. */
struct host_socket {
	struct address client, vip;
	__be16 client_port, vip_port;
};

enum host_socket_kind { SOCKET_OWN = 1, SOCKET_COOKIE = 2 };

MAP(sockets, HASH, struct host_socket, __u32, 1024);

INLINE int has_socket(context *context, const struct packet *packet, int is_error)
{
	const struct ends *ends = packet->ends;
	struct host_socket key = { ends->from.client, ends->to.vip, ends->from.port,
				   ends->to.port };
	const __u32 *kind = bpf_map_lookup_elem(&sockets, &key);

	(void)context;
	return kind && (*kind == SOCKET_OWN || !is_error);
}

/* Replies of the kernel are not modelled. */
INLINE void ensure_rst(context *context, const struct packet *packet)
{
	(void)context, (void)packet;
}

#include "../hand_on.h"

static struct host_map *const all_maps[] = { &settings, &vips,	   &services,	    &rows,
					     &nodes,	&steerers, &verdicts,	    &service_counts,
					     &node_counts, &moves,  &sockets };
#define run serve

#else

INLINE int resize(context *context, struct frame *frame, __u32 length)
{
	if (length > context->head_bytes)
		return 0;
	context->head = realloc(context->head, length);
	context->head_bytes = length;
	context->rest_bytes = 0;
	read_frame(context, frame);
	return 1;
}

static long bpf_ringbuf_output(void *ring, void *data, __u64 size, __u64 flags)
{
	(void)size;
	return bpf_map_update_elem(ring, &events_reported, data, flags) ? -1 :
									  (events_reported++, 0);
}

#include "../dispatch.h"

static struct host_map *const all_maps[] = { &settings, &vips,	   &services,	    &rows,
					     &nodes,	&steerers, &verdicts,	    &service_counts,
					     &node_counts, &flows, &loads,	    &assigned,
					     &sources,	&total,	   &networks,	    &events };
#define run dispatch

#endif

static void take(void *bytes, size_t length)
{
	if (length && fread(bytes, length, 1, stdin) != 1)
		exit(2);
}

static void give(const void *bytes, size_t length)
{
	if (length && fwrite(bytes, length, 1, stdout) != 1)
		exit(2);
}

static __u32 take_number(void)
{
	__u32 number;

	take(&number, sizeof(number));
	return number;
}

/* Length first; a block of exactly this size. */
static __u8 *take_block(__u32 *length)
{
	__u8 *block;

	*length = take_number();
	block = malloc(*length ? *length : 1);
	take(block, *length);
	return block;
}

static void give_block(const void *block, __u32 length)
{
	give(&length, sizeof(length));
	give(block, length);
}

static struct host_map *take_map(void)
{
	__u32 length;
	__u8 *name = take_block(&length);
	struct host_map *found = 0;

	for (size_t i = 0; i < sizeof(all_maps) / sizeof(*all_maps); i++)
		if (strlen(all_maps[i]->name) == length && !memcmp(all_maps[i]->name, name, length))
			found = all_maps[i];
	if (!found) {
		fprintf(stderr, "no map %.*s\n", (int)length, (const char *)name);
		exit(2);
	}
	free(name);
	return found;
}

static int set_values(struct host_map *map, const __u8 *key, const __u8 *value, __u32 value_size)
{
	__u32 index;

	if (value_size == map->value_size)
		return !bpf_map_update_elem(map, key, value, 0);
	memcpy(&index, key, sizeof(index));
	if (map->kind != HOST_ARRAY || value_size % map->value_size ||
	    index + value_size / map->value_size > map->entries_max)
		return 0;
	make_storage(map);
	memcpy(map->values + (size_t)index * map->value_size, value, value_size);
	return 1;
}

static void set_entry(void)
{
	struct host_map *map = take_map();
	__u32 key_size, value_size;
	__u8 *key = take_block(&key_size), *value = take_block(&value_size);

	if (key_size != map->key_size || !set_values(map, key, value, value_size)) {
		fprintf(stderr, "%s: no entry of %u and %u bytes\n", map->name, key_size,
			value_size);
		exit(2);
	}
	free(key);
	free(value);
}

static int is_zero(const __u8 *bytes, __u32 length)
{
	for (__u32 i = 0; i < length; i++)
		if (bytes[i])
			return 0;
	return 1;
}

static void clear_maps(void)
{
	for (size_t i = 0; i < sizeof(all_maps) / sizeof(*all_maps); i++)
		if (all_maps[i] != &rows)
			clear_map(all_maps[i]);
#ifndef SKEP_NODE
	events_reported = 0;
#endif
	memset(counted, 0, sizeof(counted));
}

static void dump_map(void)
{
	struct host_map *map = take_map();

	make_storage(map);
	for (__u32 i = 0; map->kind == HOST_ARRAY && i < map->entries_max; i++) {
		const __u8 *value = map->values + (size_t)i * map->value_size;

		if (is_zero(value, map->value_size))
			continue;
		give_block(&i, sizeof(i));
		give_block(value, map->value_size);
	}
	for (__u32 i = 0; map->kind != HOST_ARRAY && i < BUCKETS; i++)
		for (struct host_entry *entry = map->bucket[i]; entry; entry = entry->next) {
			give_block(entry->bytes, map->key_size);
			give_block(entry->bytes + value_at(map), map->value_size);
		}
	give_block(0, 0);
	fflush(stdout);
}

/* The verdict is the one counter that went up. */
static void find_verdict(void)
{
	verdict_of_last = VERDICTS;
	for (__u32 i = 0; i < VERDICTS; i++) {
		const struct count *count = bpf_map_lookup_elem(&verdicts, &i);

		if (count->packets != counted[i].packets)
			verdict_of_last = i;
		counted[i] = *count;
	}
}

static void run_frame(void)
{
	context context;
	__u32 linear = take_number(), length, action;
	__u8 *frame;

	take(&now_ns, sizeof(now_ns));
	frame = take_block(&length);
	context.head_bytes = length < linear ? length : linear;
	context.rest_bytes = length - context.head_bytes;
	context.rest = malloc(context.rest_bytes + 1);
	memcpy(context.rest, frame + context.head_bytes, context.rest_bytes);
	context.head = realloc(frame, context.head_bytes ? context.head_bytes : 1);
	device_of_last = 0;
	action = run(&context);
	find_verdict();
	give(&verdict_of_last, sizeof(verdict_of_last));
	give(&action, sizeof(action));
	give(&device_of_last, sizeof(device_of_last));
	length = context.head_bytes + context.rest_bytes;
	give(&length, sizeof(length));
	give(context.head, context.head_bytes);
	give(context.rest, context.rest_bytes);
	free(context.head);
	free(context.rest);
}

int main(void)
{
	for (;;) {
		switch (getchar()) {
		case 'C':
			clear_maps();
			break;
		case 'S':
			set_entry();
			break;
		case 'P':
			run_frame();
			break;
		case 'D':
			dump_map();
			break;
		case 'F':
			fflush(stdout);
			break;
		case EOF:
			return 0;
		default:
			return 2;
		}
	}
}
