<?php
// The path / is answered here. So would be /NAME/, by a file NAME/index.php; there is none, and PHP says 404.
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
</dl>
<form method="post"><input name="word"><button>Send</button></form>
<?php if (isset($_POST['word'])): ?>
<p>You sent: <?= $say($_POST['word']) ?></p>
<?php endif ?>
