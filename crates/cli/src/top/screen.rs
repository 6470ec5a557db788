//! The terminal: reads keys, draws frames, and always restores its former state.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, Terminal, TerminalOptions, Viewport};
use skep_console::{ApiClient, ProcessStatus};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::model::{KeyAction, Model, Shown};
use super::view::{LINES_AROUND, draw};
use crate::arguments::TopArgs;
use crate::show::Paint;
use crate::signals::Signals;

/// Columns of the single frame that is printed if there is no terminal.
const PLAIN_COLUMNS: u16 = 80;

/// Time within which a process must answer, in milliseconds; then it is shown as silent, and queried again.
const LOOK_MS: u64 = 2_000;

/// Maximum number of keys and samples that wait to be drawn; if there are more, their senders wait.
const WAITING_MAX: usize = 16;

/// Runs until the user quits; without a terminal, prints one frame.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let found = args.target.find()?;
    let mut model = Model::new(found.client.to_string(), found.status, args.sort);
    let interval = Duration::from_millis(args.interval);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if !io::stdout().is_terminal() {
        // Rates require two samples.
        let second = runtime.block_on(async {
            tokio::time::sleep(interval).await;
            look(&found.client).await
        });
        model.look(Instant::now(), second);
        model.shown = Shown::Both;
        return print_frame(&model);
    }
    let mut screen = Screen::open()?;
    LocalSet::new().block_on(&runtime, watch(&mut screen, &mut model, found.client, interval))
}

async fn watch(
    screen: &mut Screen,
    model: &mut Model,
    client: ApiClient,
    interval: Duration,
) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let mut inputs = read_inputs()?;
    let mut looks = read_looks(client, interval);
    loop {
        screen.show(model)?;
        tokio::select! {
            Some(look) = looks.recv() => model.look(Instant::now(), look),
            Some(input) = inputs.recv() => {
                if input.is_some_and(|key| !model.press(key)) {
                    return Ok(());
                }
            }
            _ = signals.next() => return Ok(()),
        }
    }
}

/// The terminal in raw mode; restored on drop, and on a panic.
struct Screen {
    terminal: DefaultTerminal,
    paint: Paint,
}

impl Screen {
    fn open() -> anyhow::Result<Self> {
        let terminal = ratatui::try_init().context("cannot use this terminal")?;
        Ok(Self { terminal, paint: Paint::for_stdout() })
    }

    fn show(&mut self, model: &Model) -> anyhow::Result<()> {
        let paint = self.paint;
        let drawn = self.terminal.draw(|frame| draw(frame, model, Instant::now(), paint));
        drawn.map(|_| ()).context("cannot draw")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}

/// Receives the actions of keys; `None`: only redraw. The thread that reads keys ends with the process.
fn read_inputs() -> anyhow::Result<mpsc::Receiver<Option<KeyAction>>> {
    let (sender, inputs) = mpsc::channel(WAITING_MAX);
    let read = move || {
        while let Ok(event) = event::read() {
            let input = match event {
                Event::Key(key) if key.is_press() => match meaning(key) {
                    Some(key) => Some(key),
                    None => continue,
                },
                Event::Resize(..) => None,
                _ => continue,
            };
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("skep-keys".into()).spawn(read)?;
    Ok(inputs)
}

fn meaning(key: KeyEvent) -> Option<KeyAction> {
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyAction::Quit,
        KeyCode::Char('q') | KeyCode::Esc => KeyAction::Quit,
        KeyCode::Char('p' | ' ') => KeyAction::Pause,
        KeyCode::Char('s') => KeyAction::Sort,
        KeyCode::Char('l') => KeyAction::Loads,
        KeyCode::Char('?' | 'h') => KeyAction::Help,
        KeyCode::Up | KeyCode::Char('k') => KeyAction::Up,
        KeyCode::Down | KeyCode::Char('j') => KeyAction::Down,
        _ => return None,
    })
}

/// Queries the process once per interval, whether it answers or not.
fn read_looks(
    client: ApiClient,
    interval: Duration,
) -> mpsc::Receiver<Result<ProcessStatus, String>> {
    let (sender, looks) = mpsc::channel(WAITING_MAX);
    tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(interval).await;
            if sender.send(look(&client).await).await.is_err() {
                return;
            }
        }
    });
    looks
}

async fn look(client: &ApiClient) -> Result<ProcessStatus, String> {
    let patience = Duration::from_millis(LOOK_MS);
    match tokio::time::timeout(patience, client.status_async()).await {
        Ok(look) => look.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer from {client} within {LOOK_MS} ms")),
    }
}

/// Prints a frame as lines of text, with as many rows as needed.
fn print_frame(model: &Model) -> anyhow::Result<()> {
    // An empty line and a head between the two tables.
    let rows = model.nodes().len() + 2 + model.latest.loads.len();
    let rows = u16::try_from(rows).unwrap_or(u16::MAX - LINES_AROUND);
    let area = Rect::new(0, 0, PLAIN_COLUMNS, LINES_AROUND + rows);
    let backend = ratatui::backend::TestBackend::new(area.width, area.height);
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    let mut terminal = Terminal::with_options(backend, options)?;
    terminal.draw(|frame| draw(frame, model, Instant::now(), Paint::Plain))?;
    let text = lines(terminal.backend().buffer());
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).context("cannot print")
}

fn lines(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(buffer.area.width)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
