<%@ page contentType="text/html; charset=UTF-8" pageEncoding="UTF-8" %>
<%!
    private static String say(String text) {
        return text == null ? "" : text.replace("&", "&amp;").replace("<", "&lt;").replace("\"", "&quot;");
    }
%>
<%
    request.setCharacterEncoding("UTF-8");
    Integer visits = (Integer) session.getAttribute("visits");
    session.setAttribute("visits", visits == null ? 1 : visits + 1);
%>
<!doctype html>
<title>Tomcat behind Skep</title>
<link rel="stylesheet" href="/style.css">
<h1><%= say(application.getServerInfo()) %> behind Skep</h1>
<dl>
<dt>Path</dt><dd><%= say(request.getRequestURI()) %></dd>
<dt>You</dt><dd><%= say(request.getRemoteAddr()) %></dd>
<dt>Server</dt><dd><%= say(session.getId().replaceFirst("^[^.]*[.]?", "")) %></dd>
<dt>Visits in this session</dt><dd><%= session.getAttribute("visits") %></dd>
</dl>
<p><a href="/clock.jsp">A page that is stored</a></p>
<form method="post"><input name="word"><button>Send</button></form>
<% if (request.getParameter("word") != null) { %>
<p>You sent: <%= say(request.getParameter("word")) %></p>
<% } %>
