import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Collections;
import java.util.zip.CRC32;

/** The servlet under test in Tomcat: reports the request it received, and replies as the query specifies. */
public class Peer extends HttpServlet {
    @Override
    protected void service(HttpServletRequest asked, HttpServletResponse reply) throws IOException {
        reply.setHeader("X-Method", asked.getMethod());
        switch (asked.getServletPath()) {
            case "/told": told(asked, reply); break;
            case "/body": body(asked, reply); break;
            case "/big": big(asked, reply); break;
            case "/flush":
                reply.getOutputStream().write('a');
                reply.flushBuffer();
                reply.getOutputStream().write('b');
                break;
            case "/head":
                reply.setHeader("X-Long", "x".repeat(number(asked, "bytes")));
                reply.addHeader("Set-Cookie", "a=1");
                reply.addHeader("Set-Cookie", "b=2");
                reply.setStatus(418);
                break;
            case "/file":
                reply.setContentType("application/pdf");
                reply.setHeader(asked.getParameter("field"), asked.getParameter("path"));
                break;
            case "/fail": throw new IllegalStateException("as it was asked to");
            case "/hang":
                reply.setContentLength(1000);
                reply.getOutputStream().write('a');
                reply.flushBuffer();
                try {
                    // Longer than the duration of any test.
                    Thread.sleep(100_000);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
                break;
            default: reply.sendError(404);
        }
    }

    private void told(HttpServletRequest asked, HttpServletResponse reply) throws IOException {
        StringBuilder out = new StringBuilder();
        line(out, "method", asked.getMethod());
        line(out, "uri", asked.getRequestURI());
        line(out, "query", asked.getQueryString());
        line(out, "protocol", asked.getProtocol());
        line(out, "client", asked.getRemoteAddr() + " " + asked.getRemotePort());
        line(out, "local", asked.getLocalAddr());
        line(out, "server", asked.getServerName() + " " + asked.getServerPort());
        line(out, "secure", asked.isSecure());
        line(out, "cipher", asked.getAttribute("jakarta.servlet.request.cipher_suite"));
        line(out, "bits", asked.getAttribute("jakarta.servlet.request.key_size"));
        line(out, "activation", asked.getAttribute("JK_LB_ACTIVATION"));
        line(out, "length", asked.getContentLength());
        for (String name : Collections.list(asked.getHeaderNames())) {
            for (String value : Collections.list(asked.getHeaders(name))) {
                line(out, "field " + name.toLowerCase(), value);
            }
        }
        reply.getOutputStream().write(out.toString().getBytes("ISO-8859-1"));
    }

    /** Reads up to `read` bytes of the body, and reports their number and checksum. */
    private void body(HttpServletRequest asked, HttpServletResponse reply) throws IOException {
        long left = number(asked, "read");
        CRC32 sum = new CRC32();
        long count = 0;
        byte[] buffer = new byte[5000];
        InputStream in = asked.getInputStream();
        while (left > 0) {
            int n = in.read(buffer, 0, (int) Math.min(left, buffer.length));
            if (n < 0) break;
            sum.update(buffer, 0, n);
            count += n;
            left -= n;
        }
        reply.getOutputStream().print(count + " " + sum.getValue());
    }

    private void big(HttpServletRequest asked, HttpServletResponse reply) throws IOException {
        int bytes = number(asked, "bytes");
        if (asked.getParameter("length") != null) reply.setContentLength(bytes);
        OutputStream out = reply.getOutputStream();
        byte[] all = new byte[bytes];
        for (int i = 0; i < bytes; i++) all[i] = (byte) ('a' + i % 23);
        out.write(all);
    }

    private static int number(HttpServletRequest asked, String name) {
        return Integer.parseInt(asked.getParameter(name));
    }

    private static void line(StringBuilder out, String name, Object value) {
        out.append(name).append('=').append(value).append('\n');
    }
}
