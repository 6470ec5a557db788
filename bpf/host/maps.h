/* The maps of a program that runs as a process: plain tables in memory.
 *
 * Slow and simple. Keys of hashes are looked for from the first to the last
 * within one of BUCKETS lists; nothing is ever thrown out.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#define BUCKETS 65536u

enum host_kind { HOST_ARRAY, HOST_PERCPU_ARRAY = HOST_ARRAY, HOST_HASH, HOST_LRU_HASH = HOST_HASH,
		 HOST_LPM_TRIE };

struct host_entry {
	struct host_entry *next;
	__u8 bytes[]; /* the key, then, at a multiple of 8, the value */
};

struct host_map {
	const char *name;
	enum host_kind kind;
	__u32 key_size, value_size, entries_max;
	__u8 *values;               /* of an array */
	struct host_entry **bucket; /* of a hash */
};

#define MAP_FLAGS(map, kind, key_type, value_type, entries, flags)                            \
	static struct host_map map = { #map, HOST_##kind, sizeof(key_type), sizeof(value_type), \
				       entries, 0, 0 }

/* A ring is an array of what was reported, in order. */
#define RING(map, bytes)                                                                    \
	static __u32 map##_reported;                                                        \
	static struct host_map map = { #map, HOST_ARRAY, sizeof(__u32), sizeof(struct flow_event), \
				       (bytes) / sizeof(struct flow_event), 0, 0 }

static __u32 value_at(const struct host_map *map)
{
	return (map->key_size + 7) & ~7u;
}

static __u32 bucket_of(const struct host_map *map, const __u8 *key)
{
	__u32 hash = 2166136261u;

	if (map->kind == HOST_LPM_TRIE)
		return 0;
	for (__u32 i = 0; i < map->key_size; i++)
		hash = (hash ^ key[i]) * 16777619u;
	return hash % BUCKETS;
}

static void make_storage(struct host_map *map)
{
	if (map->kind == HOST_ARRAY && !map->values)
		map->values = calloc(map->entries_max, map->value_size);
	if (map->kind != HOST_ARRAY && !map->bucket)
		map->bucket = calloc(BUCKETS, sizeof(*map->bucket));
}

/* Bits in which a network agrees with an address, if it holds it; else -1. */
static int fit_of(const __u8 *network, const __u8 *key)
{
	__u32 bits;

	memcpy(&bits, network, sizeof(bits));
	for (__u32 i = 0; i < bits; i++) {
		__u32 byte = sizeof(bits) + i / 8, bit = 7 - i % 8;

		if ((network[byte] ^ key[byte]) >> bit & 1)
			return -1;
	}
	return (int)bits;
}

static void *find_longest(struct host_map *map, const __u8 *key)
{
	struct host_entry *best = 0;
	int best_fit = -1;

	for (struct host_entry *entry = map->bucket[0]; entry; entry = entry->next) {
		int fit = fit_of(entry->bytes, key);

		if (fit > best_fit) {
			best = entry;
			best_fit = fit;
		}
	}
	return best ? best->bytes + value_at(map) : 0;
}

static struct host_entry **find_link(struct host_map *map, const void *key)
{
	struct host_entry **link = &map->bucket[bucket_of(map, key)];

	while (*link && memcmp((*link)->bytes, key, map->key_size))
		link = &(*link)->next;
	return link;
}

static void *bpf_map_lookup_elem(void *any, const void *key)
{
	struct host_map *map = any;
	struct host_entry *entry;
	__u32 index;

	make_storage(map);
	if (map->kind == HOST_LPM_TRIE)
		return find_longest(map, key);
	if (map->kind == HOST_ARRAY) {
		memcpy(&index, key, sizeof(index));
		return index < map->entries_max ? map->values + (size_t)index * map->value_size : 0;
	}
	entry = *find_link(map, key);
	return entry ? entry->bytes + value_at(map) : 0;
}

static long bpf_map_update_elem(void *any, const void *key, const void *value, __u64 flags)
{
	struct host_map *map = any;
	struct host_entry **link, *entry;
	void *found;

	(void)flags;
	make_storage(map);
	if (map->kind == HOST_ARRAY) {
		found = bpf_map_lookup_elem(map, key);
		if (!found)
			return -1;
		memcpy(found, value, map->value_size);
		return 0;
	}
	link = find_link(map, key);
	if (!*link) {
		*link = calloc(1, sizeof(*entry) + value_at(map) + map->value_size);
		memcpy((*link)->bytes, key, map->key_size);
	}
	memcpy((*link)->bytes + value_at(map), value, map->value_size);
	return 0;
}

static long bpf_map_delete_elem(void *any, const void *key)
{
	struct host_map *map = any;
	struct host_entry **link, *entry;

	make_storage(map);
	link = find_link(map, key);
	entry = *link;
	if (!entry)
		return -1;
	*link = entry->next;
	free(entry);
	return 0;
}

static void clear_map(struct host_map *map)
{
	make_storage(map);
	if (map->kind == HOST_ARRAY) {
		memset(map->values, 0, (size_t)map->entries_max * map->value_size);
		return;
	}
	for (__u32 i = 0; i < BUCKETS; i++)
		while (map->bucket[i]) {
			struct host_entry *entry = map->bucket[i];

			map->bucket[i] = entry->next;
			free(entry);
		}
}
