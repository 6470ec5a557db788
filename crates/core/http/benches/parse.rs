//! Nanoseconds per ordinary request, from bytes to a checked head: scan, parse, normalise the path;
//! with httparse alone for comparison. `cargo bench -p skep-http`.

use std::hint::black_box;

use skep_http::forward::{Claims, Forward, HostPolicy, write_request};
use skep_http::path::Reading;
use skep_http::{
    BodyDecoder, BodyFraming, BodyLimits, FieldSlots, HeadLimits, HeadScanner, HttpDate,
    parse_request, path,
};

const SMALL: &[u8] = b"GET /1k HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/2026/11/why-bees-build-hexagons?utm_source=feed HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: max-age=0\r\n\
    sec-ch-ua: \"Chromium\";v=\"142\", \"Google Chrome\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Dest: document\r\n\
    Referer: https://www.example.org/articles/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9,de;q=0.8\r\n\
    \r\n";

const ROUNDS: usize = 9;
/// Enough for the kernel's CPU time clock, which advances in ticks.
const CALLS: u32 = 1_000_000;

fn main() {
    let limits = HeadLimits::default();
    for (name, bytes) in [("small", SMALL), ("browser", BROWSER)] {
        report(&format!("{name}: scan"), || {
            let end = HeadScanner::default().scan(black_box(bytes), &limits);
            black_box(end).is_ok()
        });
        report(&format!("{name}: httparse"), || {
            let mut slots = [const { std::mem::MaybeUninit::uninit() }; 128];
            let mut req = httparse::Request::new(&mut []);
            black_box(req.parse_with_uninit_headers(black_box(bytes), &mut slots)).is_ok()
        });
        report(&format!("{name}: parse"), || {
            let mut slots = FieldSlots::new();
            black_box(parse_request(&mut slots, black_box(bytes), &limits)).is_ok()
        });
        report(&format!("{name}: scan, parse, normalise"), || {
            let mut scanner = HeadScanner::default();
            let Ok(Some(len)) = scanner.scan(black_box(bytes), &limits) else { return false };
            let mut slots = FieldSlots::new();
            let Ok(head) = parse_request(&mut slots, &bytes[..len], &limits) else { return false };
            black_box(path::read(head.path, Reading::Files)).is_ok()
        });
    }
    forward(&limits);
    body();
    report("date: format", || black_box(HttpDate(black_box(1_795_000_000)).format())[0] != 0);
}

fn forward(limits: &HeadLimits) {
    let mut slots = FieldSlots::new();
    let Ok(head) = parse_request(&mut slots, BROWSER, limits) else { return };
    let forward = Forward {
        client: [192, 0, 2, 1].into(),
        proto: "http",
        host: HostPolicy::Keep,
        claims: Claims::Replace,
        target: None,
        server_name: None,
        upgrade: false,
        without: &[],
        extra: b"",
    };
    let mut out = Vec::with_capacity(4096);
    report("browser: forward", || {
        out.clear();
        write_request(&mut out, black_box(&head), &forward);
        !black_box(&out).is_empty()
    });
}

fn body() {
    let body = b"10\r\n0123456789abcdef\r\n0\r\n\r\n";
    report("body: one chunk of 16 bytes", || {
        let Ok(mut decoder) = BodyDecoder::new(BodyFraming::Chunked, &BodyLimits::default()) else {
            return false;
        };
        black_box(decoder.decode(black_box(body))).is_ok_and(|decoded| decoded.done)
    });
}

/// Prints the median of several rounds, in CPU time, since the machine may be shared.
fn report(name: &str, mut call: impl FnMut() -> bool) {
    let mut rounds_ns: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start_ns = cpu_ns();
            for _ in 0..CALLS {
                assert!(call(), "{name} failed");
            }
            (cpu_ns() - start_ns) as f64 / f64::from(CALLS)
        })
        .collect();
    rounds_ns.sort_by(f64::total_cmp);
    println!("{name:<32} {:>8.1} ns (fastest round {:.1})", rounds_ns[ROUNDS / 2], rounds_ns[0]);
}

/// CPU time of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
