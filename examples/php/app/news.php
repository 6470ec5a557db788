<?php
// The same for all clients, so nodes store it: for a minute, and stale for another one while it is made anew.
header('Content-Type: text/html; charset=utf-8');
header('Cache-Control: max-age=60, stale-while-revalidate=60');
header('Surrogate-Key: news');
?>
<!doctype html>
<title>News from PHP</title>
<link rel="stylesheet" href="/style.css">
<h1>News</h1>
<p>Made at <?= date('H:i:s') ?> by process <?= getmypid() ?>.</p>
