<%@ page contentType="text/html; charset=UTF-8" pageEncoding="UTF-8" session="false" %>
<%
    // The same for all clients, so nodes store it: for a minute, and stale for another one while it is made anew.
    // It has no session: a response that sets a cookie is not stored.
    response.setHeader("Cache-Control", "max-age=60, stale-while-revalidate=60");
    response.setHeader("Surrogate-Key", "news");
%>
<!doctype html>
<title>News from Tomcat</title>
<link rel="stylesheet" href="/style.css">
<h1>News</h1>
<p>Made at <%= java.time.LocalTime.now().withNano(0) %> by <%= Thread.currentThread().getName() %>.</p>
