<?php
// The same for all, so it may be stored: Skep answers with it for 10 s, and while it is made anew.
header('Content-Type: text/plain; charset=utf-8');
header('Cache-Control: public, max-age=10, stale-while-revalidate=10');
echo 'Made by server ', getenv('SERVER'), ' at ', date('H:i:s'), ', number ', hrtime(true), "\n";
