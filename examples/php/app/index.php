<?php
// The path / is answered here. So would be /NAME/, by a file NAME/index.php; there is none, and PHP says 404.
// A session is in the files of one server: Skep's cookie leads back there. PHP says no-store with it.
session_start();
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
header('Content-Type: text/html; charset=utf-8');
$say = fn (?string $text) => htmlspecialchars($text ?? '', ENT_QUOTES);
?>
<!doctype html>
<title>PHP behind Skep</title>
<link rel="stylesheet" href="/style.css">
<h1>PHP <?= PHP_VERSION ?> behind Skep</h1>
<dl>
<dt>Path</dt><dd><?= $say($_SERVER['REQUEST_URI']) ?></dd>
<dt>You</dt><dd><?= $say($_SERVER['REMOTE_ADDR']) ?></dd>
<dt>Sent by</dt><dd><?= $say($_SERVER['SERVER_SOFTWARE']) ?></dd>
<dt>Server</dt><dd><?= $say(getenv('SERVER')) ?></dd>
<dt>Visits in this session</dt><dd><?= $say((string) $_SESSION['visits']) ?></dd>
</dl>
<p><a href="/clock.php">A page that is stored</a></p>
<form method="post"><input name="word"><button>Send</button></form>
<?php if (isset($_POST['word'])): ?>
<p>You sent: <?= $say($_POST['word']) ?></p>
<?php endif ?>
