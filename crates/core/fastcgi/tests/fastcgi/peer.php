<?php
// The script under test in php-fpm: reports the request it received, and replies as the query specifies.
$number = fn(string $name): int => (int) ($_GET[$name] ?? 0);
switch ($_GET['do'] ?? 'told') {
case 'told':
    foreach ($_SERVER as $name => $value) {
        if (is_string($value)) echo "$name=$value\n";
    }
    break;
case 'body':
    $body = file_get_contents('php://input');
    echo strlen($body), ' ', crc32($body);
    break;
case 'early':
    echo 'early';
    break;
case 'big':
    $bytes = $number('bytes');
    if (isset($_GET['length'])) header("Content-Length: $bytes");
    echo substr(str_repeat('abcdefghijklmnopqrstuvw', intdiv($bytes, 23) + 1), 0, $bytes);
    break;
case 'short':
    header('Content-Length: 10');
    echo 'five!';
    break;
case 'long':
    header('Content-Length: 5');
    echo 'more than five';
    break;
case 'status':
    http_response_code($number('code'));
    header('Set-Cookie: a=1', false);
    header('Set-Cookie: b=2', false);
    echo 'body';
    break;
case 'file':
    header('Content-Type: application/pdf');
    header($_GET['field'] . ': ' . $_GET['path']);
    break;
case 'location':
    header('Location: /elsewhere');
    break;
case 'complain':
    error_log("first line\nsecond line");
    echo 'fine';
    error_log('after the head');
    flush();
    break;
case 'shout':
    // PHP truncates a message at 1 KiB, and writes all messages in one line.
    $message = implode("\n", array_fill(0, $number('lines'), str_repeat('x', $number('bytes'))));
    for ($i = 0; $i < $number('times'); $i++) error_log($message);
    echo 'fine';
    break;
case 'hang':
    // Longer than the duration of any test: the test kills the process, or the client disconnects.
    header('Content-Length: 1000');
    header('X-Pid: ' . getmypid());
    echo 'begun';
    flush();
    sleep(100);
    break;
case 'wait':
    // Waits until the test creates a file there.
    $seen = __DIR__ . '/seen-' . $_GET['name'];
    touch($seen);
    while (!file_exists(__DIR__ . '/go')) {
        usleep(5000);
        clearstatcache();
    }
    echo 'waited';
    break;
case 'fatal':
    no_such_function();
    break;
case 'flush':
    echo 'a';
    flush();
    echo 'b';
    break;
}
