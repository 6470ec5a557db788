/* A client that never sleeps and never copies: it polls its connections in a
 * circle and throws the bytes away in the kernel (MSG_TRUNC). wrk sleeps when
 * it has nothing to read, and on loopback the server then pays for waking it
 * (an interprocessor interrupt, microseconds in a virtual machine), which no
 * server pays for a client across a network. With this client that cost is
 * gone, and what is left is the cost of sending.
 *
 * usage: drain PORT PATH CONNECTIONS SECONDS
 *
 * All replies must be of one length, which the first one tells. Prints
 * "N requests in S s", as wrk does; any error ends it with status 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 4096, TAKE = 1 << 20, HEAD_MAX = 16384 };

static int sockets[CONNECTIONS_MAX];
static size_t left[CONNECTIONS_MAX];
static char request[1024];
static size_t request_bytes;

static void must(int ok, const char *what) {
    if (ok) return;
    perror(what);
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    return fd;
}

static void ask(int i, size_t reply_bytes) {
    must(send(sockets[i], request, request_bytes, MSG_NOSIGNAL) == (ssize_t)request_bytes, "send");
    left[i] = reply_bytes;
}

/* Reads one whole reply, slowly, and returns its length with the head. */
static size_t learn(int fd) {
    static char buffer[HEAD_MAX + 1];
    size_t have = 0;
    char *end, *length;
    must(send(fd, request, request_bytes, MSG_NOSIGNAL) == (ssize_t)request_bytes, "send");
    do {
        ssize_t n = recv(fd, buffer + have, HEAD_MAX - have, 0);
        must(n > 0, "recv");
        have += n;
        buffer[have] = 0;
    } while (!(end = strstr(buffer, "\r\n\r\n")));
    must((length = strcasestr(buffer, "\r\nContent-Length:")) && length < end, "Content-Length");
    must(buffer[9] == '2' || buffer[9] == '3', "status");
    size_t total = end + 4 - buffer + strtoul(length + 17, NULL, 10);
    while (have < total) {
        ssize_t n = recv(fd, NULL, total - have, MSG_TRUNC);
        must(n > 0, "recv");
        have += n;
    }
    return total;
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: drain PORT PATH CONNECTIONS SECONDS\n"), 2;
    int port = atoi(argv[1]), count = atoi(argv[3]);
    must(count > 0 && count <= CONNECTIONS_MAX, "CONNECTIONS");
    request_bytes = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", argv[2], port);
    for (int i = 0; i < count; i++) sockets[i] = dial(port);
    size_t reply_bytes = learn(sockets[0]);
    double start = now_s(), end = start + atof(argv[4]);
    unsigned long done = 0;
    for (int i = 0; i < count; i++) ask(i, reply_bytes);
    while (now_s() < end) {
        for (int i = 0; i < count; i++) {
            ssize_t n = recv(sockets[i], NULL, left[i] < TAKE ? left[i] : TAKE, MSG_DONTWAIT | MSG_TRUNC);
            if (n < 0 && errno == EAGAIN) continue;
            must(n > 0, "recv");
            left[i] -= n;
            if (left[i] == 0) done++, ask(i, reply_bytes);
        }
    }
    printf("  %lu requests in %.2fs\n", done, now_s() - start);
    return 0;
}
