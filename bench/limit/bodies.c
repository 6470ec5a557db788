/* How should a large body leave the process? One epoll loop, one thread, one
 * body, and every way Linux offers to send it; all else is equal. The harness
 * (skep-bench bodies) divides this process's CPU time by the replies that wrk
 * counted.
 *
 * usage: bodies MODE PORT FILE [--chunk BYTES] [--turn BYTES] [--sndbuf BYTES] [--lowat BYTES]
 *
 *   MODE
 *     write            one sendmsg of head and body, anonymous memory, 4 KiB pages
 *     write-thp        the same, memory backed by huge pages (MADV_HUGEPAGE)
 *     write-msgzc      the same from huge pages with MSG_ZEROCOPY (loopback copies anyway)
 *     sendfile         sendfile from FILE
 *     sendfile-memfd   sendfile from a memfd holding the body, 4 KiB pages
 *     sendfile-collapse  the same after MADV_COLLAPSE into 2 MiB folios
 *     sendfile-split   the same, and then split into folios of up to 64 KiB by holes
 *     sendfile-hugetlb   the same on a MFD_HUGETLB memfd (needs vm.nr_hugepages)
 *     splice-thp       vmsplice huge-page memory into a pipe, splice to the socket
 *     splice-gift      the same with SPLICE_F_GIFT
 *     splice-shared    as splice-thp with one pipe for all: what the socket does
 *                      not take is thrown away, and spliced anew when it does
 *     splice-shared-4k the same from 4 KiB pages
 *   --chunk   at most so many bytes in one system call (default: all)
 *   --turn    at most so many bytes before other connections get their turn
 *   --sndbuf  SO_SNDBUF (default: left to the kernel)
 *   --lowat   TCP_NOTSENT_LOWAT (default: none)
 *
 * Not a server: it knows one request (anything up to CRLFCRLF) and trusts its
 * client. Prints "ready" when it listens. SIGTERM ends it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { CONNECTIONS_MAX = 20000, EVENTS_MAX = 256, HUGE = 2 << 20, PIPE_BYTES = 1 << 20 };
enum source { ANONYMOUS, DISK, MEMFD };
enum method { WRITE, ZEROCOPY, SENDFILE, SPLICE, SPLICE_SHARED };

struct connection {
    int fd, pipe[2];
    size_t head_sent;      /* of the reply in flight */
    size_t body_sent;
    size_t piped;          /* in the pipe, not yet in the socket */
    size_t input_length;
    int replying, queued;
    char input[2048];
};

static enum source source;
static enum method method;
static unsigned splice_flags;
static int shared_pipe[2], nowhere;
static char head[256];
static size_t head_bytes, body_bytes, chunk = SIZE_MAX, turn = SIZE_MAX;
static int sndbuf, lowat;
static char *body;
static int body_fd = -1;
static struct connection *by_fd[CONNECTIONS_MAX];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void must(int ok, const char *what) {
    if (!ok) die(what);
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* --- where the body lies --------------------------------------------------- */

static char *map_anonymous(size_t bytes, int huge) {
    char *raw = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(raw != MAP_FAILED, "mmap");
    char *aligned = (char *)(((uintptr_t)raw + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    must(madvise(aligned, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0, "madvise");
    return aligned;
}

static char *map_memfd(size_t bytes, int hugetlb, int collapse) {
    body_fd = memfd_create("body", hugetlb ? MFD_HUGETLB : 0);
    must(body_fd >= 0, "memfd_create");
    must(ftruncate(body_fd, bytes) == 0, "ftruncate");
    char *at = map_anonymous(bytes, 0); /* reserves an aligned range */
    at = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, body_fd, 0);
    must(at != MAP_FAILED, "mmap memfd");
    memset(at, 0, bytes);
    if (collapse) must(madvise(at, bytes, MADV_COLLAPSE) == 0, "MADV_COLLAPSE");
    return at;
}

static void load_body(const char *mode, const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY);
    must(fd >= 0 && fstat(fd, &st) == 0, path);
    body_bytes = st.st_size;
    size_t room = (body_bytes + HUGE - 1) & ~(size_t)(HUGE - 1);
    if (source == DISK) {
        body_fd = fd;
        return;
    }
    body = source == MEMFD ? map_memfd(room, !strcmp(mode, "sendfile-hugetlb"), !strcmp(mode, "sendfile-collapse") || !strcmp(mode, "sendfile-split"))
                           : map_anonymous(room, strcmp(mode, "write") && strcmp(mode, "splice-shared-4k"));
    for (size_t at = 0; !strcmp(mode, "sendfile-split") && at < room; at += 128 << 10)
        must(fallocate(body_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 4096) == 0, "fallocate");
    for (size_t at = 0; at < body_bytes;) {
        ssize_t n = read(fd, body + at, body_bytes - at);
        must(n > 0, path);
        at += n;
    }
    close(fd);
}

static void choose(const char *mode) {
    method = !strncmp(mode, "sendfile", 8) ? SENDFILE
             : !strncmp(mode, "splice-shared", 13) ? SPLICE_SHARED
             : !strncmp(mode, "splice", 6) ? SPLICE
             : !strcmp(mode, "write-msgzc") ? ZEROCOPY : WRITE;
    source = method != SENDFILE ? ANONYMOUS : !strcmp(mode, "sendfile") ? DISK : MEMFD;
    splice_flags = !strcmp(mode, "splice-gift") ? SPLICE_F_GIFT : 0;
}

/* --- how it is sent: each returns bytes taken, 0 when the socket is full ---- */

static ssize_t send_vector(struct connection *c, size_t want, int flags) {
    struct iovec parts[2] = {
        {head + c->head_sent, head_bytes - c->head_sent},
        {body + c->body_sent, want},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL | flags);
    if (n < 0) return n;
    size_t of_head = smaller(n, parts[0].iov_len);
    c->head_sent += of_head;
    c->body_sent += n - of_head;
    return n;
}

static int send_head(struct connection *c) {
    if (c->head_sent == head_bytes) return 1;
    ssize_t n = send(c->fd, head + c->head_sent, head_bytes - c->head_sent, MSG_NOSIGNAL | MSG_MORE);
    if (n > 0) c->head_sent += n;
    return n > 0;
}

static ssize_t send_file(struct connection *c, size_t want) {
    if (!send_head(c)) return -1;
    off_t at = c->body_sent;
    ssize_t n = sendfile(c->fd, body_fd, &at, want);
    if (n > 0) c->body_sent += n;
    return n;
}

static ssize_t send_spliced(struct connection *c, size_t want) {
    if (!send_head(c)) return -1;
    if (c->piped == 0) {
        struct iovec part = {body + c->body_sent, smaller(want, PIPE_BYTES)};
        ssize_t n = vmsplice(c->pipe[1], &part, 1, SPLICE_F_NONBLOCK | splice_flags);
        must(n > 0, "vmsplice");
        c->piped = n;
    }
    ssize_t n = splice(c->pipe[0], NULL, c->fd, NULL, c->piped, SPLICE_F_NONBLOCK);
    if (n > 0) c->piped -= n, c->body_sent += n;
    return n;
}

static ssize_t send_spliced_shared(struct connection *c, size_t want) {
    if (!send_head(c)) return -1;
    struct iovec part = {body + c->body_sent, smaller(want, PIPE_BYTES)};
    ssize_t left = vmsplice(shared_pipe[1], &part, 1, SPLICE_F_NONBLOCK), sent = 0, n = 0;
    must(left > 0, "vmsplice");
    while (left && (n = splice(shared_pipe[0], NULL, c->fd, NULL, left, SPLICE_F_NONBLOCK)) > 0) left -= n, sent += n;
    int why = errno;
    while (left && (n = splice(shared_pipe[0], NULL, nowhere, NULL, left, 0)) > 0) left -= n;
    must(left == 0, "splice to nowhere");
    c->body_sent += sent;
    errno = why;
    return sent ? sent : -1;
}

/* The kernel reports each zero-copy send once; unread reports would pile up. */
static void drain_reports(struct connection *c) {
    char control[128];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    while (recvmsg(c->fd, &message, MSG_ERRQUEUE) >= 0) message.msg_controllen = sizeof control;
}

static ssize_t send_some(struct connection *c) {
    size_t want = smaller(chunk, body_bytes - c->body_sent);
    switch (method) {
    case WRITE: return send_vector(c, want, 0);
    case ZEROCOPY: return send_vector(c, want, MSG_ZEROCOPY);
    case SENDFILE: return send_file(c, want);
    case SPLICE: return send_spliced(c, want);
    case SPLICE_SHARED: return send_spliced_shared(c, want);
    }
    return -1;
}

/* --- the loop --------------------------------------------------------------- */

static struct connection *ready[CONNECTIONS_MAX];
static size_t ready_count;

static void close_connection(struct connection *c) {
    if (method == SPLICE) close(c->pipe[0]), close(c->pipe[1]);
    by_fd[c->fd] = NULL;
    close(c->fd);
    if (c->queued) { c->fd = -1; return; } /* freed when its turn comes */
    free(c);
}

/* 1: go on, 0: wait for the socket, -1: closed */
static int read_request(struct connection *c) {
    ssize_t n = recv(c->fd, c->input + c->input_length, sizeof c->input - 1 - c->input_length, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) { close_connection(c); return -1; }
    c->input_length += n;
    c->input[c->input_length] = 0;
    if (!strstr(c->input, "\r\n\r\n")) return 1;
    c->input_length = 0;
    c->head_sent = c->body_sent = 0;
    c->replying = 1;
    return 1;
}

static void wait_turn(struct connection *c) {
    if (c->queued) return;
    c->queued = 1;
    ready[ready_count++] = c;
}

static void progress(struct connection *c) {
    size_t budget = turn;
    for (;;) {
        while (c->replying) {
            ssize_t n = send_some(c);
            if (n < 0 && errno == EAGAIN) return;
            if (n <= 0) { close_connection(c); return; }
            if (c->body_sent == body_bytes) c->replying = 0;
            else if ((size_t)n >= budget) { wait_turn(c); return; }
            else budget -= n;
        }
        if (read_request(c) <= 0) return;
    }
}

static void make_pipe(int pipe[2]) {
    must(pipe2(pipe, O_NONBLOCK) == 0, "pipe2");
    must(fcntl(pipe[1], F_SETPIPE_SZ, PIPE_BYTES) >= 0, "F_SETPIPE_SZ");
}

static void accept_all(int listener, int epoll) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        int on = 1;
        if (fd >= CONNECTIONS_MAX) { close(fd); continue; }
        struct connection *c = calloc(1, sizeof *c);
        must(c != NULL, "calloc");
        c->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (sndbuf) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
        if (lowat) setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
        if (method == ZEROCOPY) setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
        if (method == SPLICE) make_pipe(c->pipe);
        by_fd[fd] = c;
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = fd};
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
    }
}

static void run_ready(void) {
    static struct connection *now[CONNECTIONS_MAX];
    size_t count = ready_count;
    memcpy(now, ready, count * sizeof *now);
    ready_count = 0;
    for (size_t i = 0; i < count; i++) {
        now[i]->queued = 0;
        if (now[i]->fd < 0) free(now[i]);
        else progress(now[i]);
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
    if (argc < 4) return fprintf(stderr, "usage: bodies MODE PORT FILE [--chunk|--turn|--sndbuf|--lowat BYTES]\n"), 2;
    signal(SIGPIPE, SIG_IGN); /* sendfile and splice know no MSG_NOSIGNAL */
    choose(argv[1]);
    if (method == SPLICE_SHARED) {
        make_pipe(shared_pipe);
        must((nowhere = open("/dev/null", O_WRONLY)) >= 0, "/dev/null");
    }
    load_body(argv[1], argv[3]);
    for (int i = 4; i + 1 < argc; i += 2) {
        long value = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--chunk")) chunk = value;
        else if (!strcmp(argv[i], "--turn")) turn = value;
        else if (!strcmp(argv[i], "--sndbuf")) sndbuf = value;
        else if (!strcmp(argv[i], "--lowat")) lowat = value;
        else return fprintf(stderr, "unknown option %s\n", argv[i]), 2;
    }
    head_bytes = snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\nServer: bodies\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n\r\n", body_bytes);
    int listener = listen_on(atoi(argv[2])), epoll = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS_MAX];
    must(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e) == 0, "epoll_ctl");
    puts("ready");
    fflush(stdout);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, ready_count ? 0 : -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) accept_all(listener, epoll);
            else if (by_fd[fd]) {
                if (method == ZEROCOPY && events[i].events & EPOLLERR) drain_reports(by_fd[fd]);
                if (!by_fd[fd]->queued) progress(by_fd[fd]);
            }
        }
        run_ready();
    }
}
