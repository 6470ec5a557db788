import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpSession;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

/**
 * The first page of a library portal: knows the client's institution by its address, begins a session, and
 * puts a page together from portlets. All pages are alike to the byte, so that each can be checked.
 */
public class Portal extends HttpServlet {
    private static final int TITLES = 4_000;
    private static final int SHOWN = 12;
    private static final String[] WORDS = {
        "annals", "archive", "atlas", "bridge", "census", "chart", "comb", "field", "garden", "harbour", "history",
        "island", "journal", "letter", "light", "map", "meadow", "music", "night", "paper", "river", "road",
        "science", "shore", "song", "stone", "survey", "theory", "tide", "trade", "valley", "winter"};
    private static final String[] INSTITUTIONS = {
        "Aldgate", "Brookfield", "Carlow", "Dunmore", "Eastham", "Fairlea", "Glenholm", "Harwick"};

    private Title[] titles;
    private String[] news;

    /** A title of the catalogue. */
    private static final class Title {
        String name;
        String keeper;
        LocalDate due;
        int loans;
    }

    /** What all servlets of the paper's portal do when they start: they load all that they need. */
    @Override
    public void init() {
        Random random = new Random(1);
        titles = new Title[TITLES];
        for (int at = 0; at < TITLES; at++) {
            Title title = new Title();
            title.name = words(random, 6);
            title.keeper = INSTITUTIONS[random.nextInt(INSTITUTIONS.length)];
            title.due = LocalDate.of(2001, 1, 1).plusDays(random.nextInt(90));
            title.loans = random.nextInt(1_000);
            titles[at] = title;
        }
        news = new String[SHOWN];
        Arrays.setAll(news, at -> words(random, 60) + " <" + at + "> & more");
    }

    @Override
    protected void doGet(HttpServletRequest asked, HttpServletResponse reply) throws ServletException, IOException {
        String institution = institutionOf(asked.getRemoteAddr());
        if (institution == null) {
            reply.sendError(403);
            return;
        }
        HttpSession session = asked.getSession();
        session.setAttribute("institution", institution);
        session.setAttribute("searches", new ArrayList<>(List.of("history river")));
        StringBuilder page = new StringBuilder(32_768);
        page.append("<!doctype html>\n<title>Library portal</title>\n<h1>").append(escaped(institution)).append("</h1>\n");
        addMenu(page);
        addNews(page);
        for (String search : List.of("history river", "atlas", "song winter", "stone")) {
            addFound(page, search);
        }
        addLoans(page, institution);
        byte[] body = page.append("<!-- the end -->\n").toString().getBytes(StandardCharsets.UTF_8);
        reply.setContentType("text/html; charset=UTF-8");
        reply.setHeader("Cache-Control", "no-store");
        reply.setContentLength(body.length);
        reply.getOutputStream().write(body);
    }

    /** By the address alone, as in the paper's benchmark; networks of test beds (RFC 2544) and of this machine. */
    private static String institutionOf(String address) {
        boolean isKnown = address.startsWith("198.18.") || address.startsWith("198.19.") || address.startsWith("127.");
        return isKnown ? INSTITUTIONS[0] : null;
    }

    /** All institutions, with their titles by the first letter. */
    private void addMenu(StringBuilder page) {
        Map<String, Map<Character, Integer>> menu = new TreeMap<>();
        for (Title title : titles) {
            menu.computeIfAbsent(title.keeper, it -> new TreeMap<>()).merge(title.name.charAt(0), 1, Integer::sum);
        }
        page.append("<ul>\n");
        menu.forEach((keeper, letters) -> {
            page.append("<li>").append(escaped(keeper));
            letters.forEach((letter, count) -> page.append(' ').append(letter).append(':').append(count));
            page.append("</li>\n");
        });
        page.append("</ul>\n");
    }

    private void addNews(StringBuilder page) {
        for (String item : news) {
            page.append("<p>").append(escaped(item)).append("</p>\n");
        }
    }

    /** The best of the titles that have a word of the search, by words found and then by loans. */
    private void addFound(StringBuilder page, String search) {
        String[] words = search.split(" ");
        List<Title> found = new ArrayList<>();
        for (Title title : titles) {
            if (rank(title, words) > 0) {
                found.add(title);
            }
        }
        Comparator<Title> byRank = Comparator.comparingInt(title -> -rank(title, words));
        found.sort(byRank.thenComparing(title -> -title.loans).thenComparing(title -> title.name));
        page.append("<h2>").append(escaped(search)).append(": ").append(found.size()).append("</h2>\n<ol>\n");
        for (Title title : found.subList(0, Math.min(SHOWN, found.size()))) {
            page.append("<li>").append(escaped(title.name)).append(", ").append(escaped(title.keeper)).append("</li>\n");
        }
        page.append("</ol>\n");
    }

    private static int rank(Title title, String[] words) {
        int rank = 0;
        String name = title.name.toLowerCase(Locale.ROOT);
        for (String word : words) {
            for (int at = name.indexOf(word); at >= 0; at = name.indexOf(word, at + 1)) {
                rank++;
            }
        }
        return rank;
    }

    /** What is due at the client's institution, the first first. */
    private void addLoans(StringBuilder page, String institution) {
        DateTimeFormatter format = DateTimeFormatter.ofPattern("EEEE, d MMMM uuuu", Locale.ENGLISH);
        List<Title> loans = new ArrayList<>(Arrays.asList(titles));
        loans.removeIf(title -> !title.keeper.equals(institution));
        loans.sort(Comparator.<Title, LocalDate>comparing(title -> title.due).thenComparing(title -> title.name));
        page.append("<table>\n");
        for (Title title : loans.subList(0, Math.min(2 * SHOWN, loans.size()))) {
            page.append("<tr><td>").append(escaped(title.name)).append("</td><td>");
            page.append(title.due.format(format)).append("</td></tr>\n");
        }
        page.append("</table>\n");
    }

    private static String words(Random random, int count) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < count; at++) {
            text.append(at == 0 ? "" : " ").append(WORDS[random.nextInt(WORDS.length)]);
        }
        return text.toString();
    }

    private static String escaped(String text) {
        StringBuilder safe = new StringBuilder(text.length() + 16);
        for (char it : text.toCharArray()) {
            switch (it) {
                case '<': safe.append("&lt;"); break;
                case '&': safe.append("&amp;"); break;
                case '"': safe.append("&quot;"); break;
                default: safe.append(it);
            }
        }
        return safe.toString();
    }
}
