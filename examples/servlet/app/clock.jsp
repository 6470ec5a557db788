<%@ page contentType="text/plain; charset=UTF-8" session="false" trimDirectiveWhitespaces="true" %>
<%-- The same for all, so it may be stored: Skep answers with it for 10 s, and while it is made anew. --%>
<% response.setHeader("Cache-Control", "public, max-age=10, stale-while-revalidate=10"); %>
Made at <%= java.time.LocalTime.now() %>, number <%= System.nanoTime() %>
