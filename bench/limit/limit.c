/* The limit: what a request costs when a server does nothing but what the
 * kernel makes it do. One epoll loop, one thread; every reply lies ready in
 * memory, head and body in one piece; a request is anything up to CRLFCRLF,
 * its path is looked up in a hash table, the answer is one write.
 *
 * usage: limit PORT ROOT [--redirect PREFIX | --vary | --private]
 *
 *   ROOT        every regular file below it is loaded at start
 *   --redirect  answer 302 with Location: PREFIX + path instead of the file
 *   --vary      say that the answer depends on Host, which all requests have
 *   --private   say that no cache may keep it
 *
 * Not a server: it reads no method, no field and no body, it has no timeout
 * and trusts its client. It is also the origin behind the proxies and caches,
 * hence the validators in its heads. Prints "ready" when it listens.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 1 << 16,        /* of the table of paths; half of it may be filled */
    CONNECTIONS_MAX = 1 << 17,
    EVENTS_MAX = 256,
    INPUT_BYTES = 16384,    /* of one read, and of a request with its neighbours */
    HEAD_BYTES_MAX = 4096,
};

struct reply {
    char *path;
    size_t path_bytes;
    char *bytes;            /* head and body */
    size_t length;
};

struct connection {
    const struct reply *reply; /* being sent, or NULL */
    size_t sent;
    char *kept;             /* input behind the reply being sent, or half a request */
    size_t kept_bytes;
};

static struct reply table[SLOTS], not_found;
static size_t replies, root_bytes;
static const char *redirect_prefix;
static const char *cache_fields = "Cache-Control: max-age=86400\r\n";
static struct connection *by_fd[CONNECTIONS_MAX];
static int epoll;

static void must(int ok, const char *what) {
    if (ok) return;
    perror(what);
    exit(1);
}

/* --- replies, all made before the first request ----------------------------- */

static uint32_t hash(const char *bytes, size_t count) { /* FNV-1a */
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < count; i++) h = (h ^ (unsigned char)bytes[i]) * 16777619u;
    return h;
}

static struct reply *slot(const char *path, size_t bytes) {
    uint32_t at = hash(path, bytes) % SLOTS;
    while (table[at].path && (table[at].path_bytes != bytes || memcmp(table[at].path, path, bytes)))
        at = (at + 1) % SLOTS;
    return &table[at];
}

static const struct reply *find(const char *path, size_t bytes) {
    const struct reply *r = slot(path, bytes);
    return r->path ? r : &not_found;
}

static size_t write_head(char *head, const char *status, const char *extra, size_t body_bytes, const struct stat *st) {
    char date[64], modified[64];
    time_t now = time(NULL), then = st ? st->st_mtime : now;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
    strftime(modified, sizeof modified, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&then));
    return snprintf(head, HEAD_BYTES_MAX,
        "HTTP/1.1 %s\r\nServer: limit\r\nDate: %s\r\nContent-Type: application/octet-stream\r\n"
        "Content-Length: %zu\r\nLast-Modified: %s\r\nETag: \"%zx-%lx\"\r\n%s\r\n",
        status, date, body_bytes, modified, body_bytes, (long)then, extra);
}

static void read_file(const char *file, char *to, size_t bytes) {
    FILE *f = fopen(file, "rb");
    must(f && fread(to, 1, bytes, f) == bytes, file);
    fclose(f);
}

static int load(const char *file, const struct stat *st, int kind, struct FTW *where) {
    (void)where;
    if (kind != FTW_F) return 0;
    char head[HEAD_BYTES_MAX], location[HEAD_BYTES_MAX / 2];
    const char *path = file + root_bytes;
    size_t body_bytes = redirect_prefix ? 0 : st->st_size;
    snprintf(location, sizeof location, "Location: %s%s\r\n", redirect_prefix ? redirect_prefix : "", path);
    size_t head_bytes = redirect_prefix ? write_head(head, "302 Found", location, 0, st)
                                        : write_head(head, "200 OK", cache_fields, body_bytes, st);
    errno = ENOSPC;
    must(++replies <= SLOTS / 2, "too many files");
    struct reply *r = slot(path, strlen(path));
    *r = (struct reply){strdup(path), strlen(path), malloc(head_bytes + body_bytes), head_bytes + body_bytes};
    must(r->path && r->bytes, "malloc");
    memcpy(r->bytes, head, head_bytes);
    if (body_bytes) read_file(file, r->bytes + head_bytes, body_bytes);
    return 0;
}

static void load_all(const char *root) {
    static char head[HEAD_BYTES_MAX];
    not_found.length = write_head(head, "404 Not Found", "", 0, NULL);
    not_found.bytes = head;
    root_bytes = strlen(root);
    while (root_bytes && root[root_bytes - 1] == '/') root_bytes--;
    must(nftw(root, load, 64, FTW_PHYS) == 0, root);
}

/* --- connections ------------------------------------------------------------- */

static void close_connection(int fd) {
    free(by_fd[fd]->kept);
    free(by_fd[fd]);
    by_fd[fd] = NULL;
    close(fd);
}

static void wait_for(int fd, uint32_t events) {
    struct epoll_event e = {.events = events, .data.fd = fd};
    must(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &e) == 0, "epoll_ctl");
}

/* 1: all sent, 0: the socket is full, -1: closed */
static int send_reply(int fd, struct connection *c) {
    while (c->sent < c->reply->length) {
        ssize_t n = send(fd, c->reply->bytes + c->sent, c->reply->length - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) return 0;
        if (n <= 0) return close_connection(fd), -1;
        c->sent += n;
    }
    c->reply = NULL;
    return 1;
}

static const struct reply *look_up(const char *head, const char *end) {
    const char *path = memchr(head, ' ', end - head);
    const char *stop = path ? memchr(path + 1, ' ', end - path - 1) : NULL;
    return stop ? find(path + 1, stop - path - 1) : &not_found;
}

static int keep(int fd, struct connection *c, const char *bytes, size_t count) {
    if (count > INPUT_BYTES / 2) return close_connection(fd), -1;
    free(c->kept);
    c->kept = count ? malloc(count) : NULL;
    must(!count || c->kept, "malloc");
    if (count) memcpy(c->kept, bytes, count);
    c->kept_bytes = count;
    return 0;
}

/* Answers every whole request in the input; -1 when the connection is gone. */
static int answer(int fd, struct connection *c, const char *at, size_t left) {
    const char *end;
    while (left && (end = memmem(at, left, "\r\n\r\n", 4))) {
        c->reply = look_up(at, end);
        c->sent = 0;
        left -= end + 4 - at;
        at = end + 4;
        int sent = send_reply(fd, c);
        if (sent < 0) return -1;
        if (sent == 0) {
            wait_for(fd, EPOLLOUT);
            break;
        }
    }
    return left || c->kept ? keep(fd, c, at, left) : 0;
}

static void on_readable(int fd, struct connection *c) {
    static char input[INPUT_BYTES];
    size_t have = c->kept_bytes;
    if (have) memcpy(input, c->kept, have);
    ssize_t n = recv(fd, input + have, sizeof input - have, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) close_connection(fd);
    else answer(fd, c, input, have + n);
}

static void on_writable(int fd, struct connection *c) {
    static char input[INPUT_BYTES];
    if (send_reply(fd, c) <= 0) return;
    size_t have = c->kept_bytes;
    if (have) memcpy(input, c->kept, have);
    wait_for(fd, EPOLLIN);
    if (have) answer(fd, c, input, have);
}

static void accept_all(int listener) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= CONNECTIONS_MAX) {
            close(fd);
            continue;
        }
        must((by_fd[fd] = calloc(1, sizeof *by_fd[fd])) != NULL, "calloc");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
    }
}

static int listen_on(int port) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    must(bind(fd, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    must(listen(fd, 4096) == 0, "listen");
    return fd;
}

int main(int argc, char **argv) {
    int redirects = argc == 5 && !strcmp(argv[3], "--redirect");
    int varies = argc == 4 && !strcmp(argv[3], "--vary");
    int is_private = argc == 4 && !strcmp(argv[3], "--private");
    if (argc != 3 && !redirects && !varies && !is_private)
        return fprintf(stderr, "usage: limit PORT ROOT [--redirect PREFIX | --vary | --private]\n"), 2;
    if (redirects) redirect_prefix = argv[4];
    if (varies) cache_fields = "Cache-Control: max-age=86400\r\nVary: Host\r\n";
    if (is_private) cache_fields = "Cache-Control: private\r\n";
    load_all(argv[2]);
    int listener = listen_on(atoi(argv[1]));
    must((epoll = epoll_create1(0)) >= 0, "epoll_create1");
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS_MAX];
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e) == 0, "epoll_ctl");
    puts("ready");
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) accept_all(listener);
            else if (by_fd[fd]->reply) on_writable(fd, by_fd[fd]);
            else on_readable(fd, by_fd[fd]);
        }
    }
}
