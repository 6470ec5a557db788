//! One run: a workload on a cluster under a policy, event by event.

use skep_policy::UnknownPolicy;
use skep_wire::message::NodeLoad;

use crate::limits::{NS_PER_MS, NS_PER_S, REPORT_INTERVAL_MS};
use crate::outcome::RunOutcome;
use crate::part::ObjectPart;
use crate::request::Request;
use crate::timed_request::TimedRequest;
use crate::world::{Event, OfferedLoad, SiteRun, Transfer, World};

impl SiteRun<'_> {
    /// Runs until all requests have ended.
    pub fn under(&self, policy: &str) -> Result<RunOutcome, UnknownPolicy> {
        let mut world = World::new(*self, policy)?;
        world.start();
        let (mut ended, mut last) = (Vec::new(), 0);
        while let Some((now, event)) = world.events.pop() {
            world.handle_event(now, event, &mut ended);
            last = now;
        }
        world.outcome.totals.link_bytes = world.link_bytes(last);
        assert!(world.requests.is_empty(), "every request ends");
        Ok(world.outcome)
    }
}

impl World<'_> {
    fn start(&mut self) {
        match self.run.load {
            OfferedLoad::Open { .. } | OfferedLoad::Logged => {
                self.events.schedule(0, Event::Arrival);
            }
            OfferedLoad::Closed { clients } => {
                (0..clients).for_each(|client| self.events.schedule(0, Event::Client(client)));
            }
            OfferedLoad::Ramp(ramp) => (0..ramp.clients).for_each(|client| {
                self.events.schedule(ramp.begins_ms(client) * NS_PER_MS, Event::Client(client));
            }),
        }
        self.start_elasticity();
        if self.choosers.len() > 1 {
            self.events.schedule(REPORT_INTERVAL_MS * NS_PER_MS, Event::Report);
        }
    }

    fn handle_event(&mut self, now: u64, event: Event, ended: &mut Vec<Transfer>) {
        match event {
            Event::Arrival => self.arrive(now),
            Event::Client(client) => self.ask(now, client),
            Event::Serve(request) => self.serve(now, request),
            Event::FetchArrives(fetch) => self.fetch_arrives(now, fetch),
            Event::Wake(rate) => {
                let wake = self.rates[rate as usize].wake(now, ended);
                wake.into_iter().for_each(|at| self.events.schedule(at, Event::Wake(rate)));
                for transfer in ended.drain(..) {
                    match transfer {
                        Transfer::Send(request) => self.send_ended(now, request),
                        Transfer::Fetch(fetch) => self.fetch_ended(now, fetch),
                        Transfer::HandOver(node) => self.handed_over(now, node),
                        Transfer::PassOn(node) => self.passed_on(now, node),
                    }
                }
            }
            Event::Report => self.report(now),
            Event::Elasticity => self.tick_elasticity(now),
            Event::Booted(node) => self.booted(now, node),
            Event::LossDetected => self.loss_detected(),
            Event::Retry(request) => self.retry(now, request),
            Event::Refetch(fetch) => self.refetch(now, fetch),
        }
    }

    fn arrive(&mut self, now: u64) {
        if self.run.load == OfferedLoad::Logged {
            return self.arrive_as_logged(now);
        }
        // One of many clients, as over a longer time; policies may use their addresses.
        let client = self.rng.below(1 << 16) as u32;
        self.ask(now, client);
        if self.asked < self.run.requests {
            let gap = -(1.0 - self.rng.unit()).ln() * self.arrival_gap_ns;
            self.events.schedule(now + gap as u64, Event::Arrival);
        }
    }

    fn arrive_as_logged(&mut self, now: u64) {
        let logged = &self.run.site.logged;
        let TimedRequest { client, object, part, .. } = logged[self.asked as usize];
        self.ask_for(now, client, (object, part));
        if self.asked < self.run.requests {
            self.events.schedule(logged[self.asked as usize].at_ns, Event::Arrival);
        }
    }

    /// Has a client request an object, unless all requests have been made.
    fn ask(&mut self, now: u64, client: u32) {
        if !self.has_ended(now, client) {
            let object = self.run.site.popularity.draw(&mut self.rng) as u32;
            let part = self.run.site.objects[object as usize].whole();
            self.ask_for(now, client, (object, part));
        }
    }

    fn ask_for(&mut self, now: u64, client: u32, (object, part): (u32, ObjectPart)) {
        let number = self.asked;
        self.lose_if_due(now, number);
        self.asked += 1;
        if number == self.run.warm_up_requests() {
            self.warm = (now, self.busy_ns(now));
            self.outcome.warm_up_totals = self.outcome.totals;
            self.traffic.restart();
        }
        let chooser = client as usize % self.choosers.len();
        let node = self.choose(now, chooser, (client, object));
        let is_measured = number >= self.run.warm_up_requests() && self.outcome.loss.is_none();
        let request = Request::new(now, (client, chooser), (object, part), node, is_measured);
        let id = self.requests.insert(request) as u32;
        self.outcome.in_progress_most = self.outcome.in_progress_most.max(self.requests.len());
        self.send_to(now, id);
        if self.asked == self.run.requests {
            match &mut self.outcome.loss {
                Some(loss) => loss.last_arrival_s = now as f64 / NS_PER_S as f64,
                None => self.measure_until(now, self.asked),
            }
        }
    }

    /// The node that a dispatcher chooses for a client's request of an object.
    pub(crate) fn choose(&mut self, now: u64, chooser: usize, of: (u32, u32)) -> u32 {
        let (client, object) = of;
        let rates = &self.rates;
        let path = &self.run.site.objects[object as usize].path;
        self.choosers[chooser].choose(now, (client, path), |node| rates[node].virtual_bytes(now))
    }

    /// Sends a request to its node, which reads it when its processor is free.
    pub(crate) fn send_to(&mut self, now: u64, id: u32) {
        let node = self.requests[id as usize].node;
        if self.memories.is_lost(node) {
            return self.wait_for_lost(now, id);
        }
        let processor = &mut self.processors_ns[node as usize];
        *processor = now.max(*processor) + self.run.cluster.nodes[node as usize].request_ns;
        self.events.schedule(*processor, Event::Serve(id));
    }

    /// A node has read a request.
    fn serve(&mut self, now: u64, id: u32) {
        match self.requests[id as usize].is_cut {
            true => drop(self.requests.remove(id as usize)),
            false => self.advance(now, id),
        }
    }

    /// Whether a client makes no more requests.
    fn has_ended(&self, now: u64, client: u32) -> bool {
        match self.run.load {
            OfferedLoad::Ramp(ramp) => now >= (ramp.begins_ms(client) + ramp.client_ms) * NS_PER_MS,
            OfferedLoad::Open { .. } | OfferedLoad::Closed { .. } | OfferedLoad::Logged => {
                self.asked == self.run.requests
            }
        }
    }

    /// Whether any client will make requests.
    pub(crate) fn is_going_on(&self, now: u64) -> bool {
        match self.run.load {
            OfferedLoad::Ramp(ramp) => now < ramp.ends_ms() * NS_PER_MS,
            OfferedLoad::Open { .. } | OfferedLoad::Closed { .. } | OfferedLoad::Logged => {
                self.asked < self.run.requests
            }
        }
    }

    fn report(&mut self, now: u64) {
        for node in 0..self.run.cluster.nodes.len() as u32 {
            let virtual_bytes = self.rates[node as usize].virtual_bytes(now);
            let works = self.choosers.iter().map(|it| it.own_work(node, virtual_bytes));
            let sum = works.reduce(skep_policy::Work::plus).unwrap_or_default();
            let load = NodeLoad {
                requests_in_flight: sum.requests,
                bytes_outstanding: sum.bytes,
                ..NodeLoad::default()
            };
            for chooser in &mut self.choosers {
                chooser.report(node, &load, virtual_bytes);
            }
        }
        if self.is_going_on(now) {
            self.events.schedule(now + REPORT_INTERVAL_MS * NS_PER_MS, Event::Report);
        }
    }

    fn busy_ns(&self, now: u64) -> Vec<u64> {
        let links = &self.rates[..self.run.cluster.nodes.len()];
        links.iter().map(|link| link.busy_ns(now)).collect()
    }

    /// The number of bytes that the links have moved.
    fn link_bytes(&self, now: u64) -> u64 {
        let busy = self.busy_ns(now);
        let rates = self.run.cluster.nodes.iter().map(|node| node.link_bytes_per_s as f64);
        rates.zip(busy).map(|(rate, busy)| rate * busy as f64 / NS_PER_S as f64).sum::<f64>() as u64
    }

    /// Called at the last arrival, or when nodes are lost, after `asked` requests: measures how evenly links
    /// were used since the warm-up.
    pub(crate) fn measure_until(&mut self, now: u64, asked: u64) {
        let (since, before) = &self.warm;
        let busy: Vec<u64> =
            self.busy_ns(now).iter().zip(before).map(|(now, before)| now - before).collect();
        let passed_ns = (now - since).max(1) as f64;
        let mean = busy.iter().sum::<u64>() as f64 / busy.len() as f64;
        let most = busy.iter().max().copied().unwrap_or(0) as f64;
        self.outcome.busiest_over_mean = most / mean;
        self.outcome.link_use = mean / passed_ns;
        let measured = asked.saturating_sub(self.run.warm_up_requests());
        self.traffic.traffic.requests = measured;
        self.outcome.coordinator = self.traffic.traffic;
        self.outcome.requests_per_s = measured as f64 / passed_ns * NS_PER_S as f64;
    }
}
