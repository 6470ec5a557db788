<?php
// Answers with the file of the path, as an application answers with a page of that size.
$file = $_SERVER['DOCUMENT_ROOT'] . $_SERVER['REQUEST_URI'];
header('Content-Type: application/octet-stream');
header('Content-Length: ' . filesize($file));
readfile($file);
