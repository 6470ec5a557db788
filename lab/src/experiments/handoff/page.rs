//! The page: its introduction, and a section for each part.

mod details;
mod loss;
mod moves;
mod nodes;
mod relay;
mod sizes;
mod to_self;

use super::{Results, transports};
use crate::experiments::page::Page;

impl Results {
    pub(super) fn page(&self) -> Page {
        let mut page = Page::new("handoff");
        page.add("# TCP handoff\n");
        page.add(
            "`skep-lab handoff` makes this page ([how](README.md)), or parts of it by `--parts moves,to-self,nodes,sizes,loss,transports,relay`. All \
             machines are network namespaces on one machine and share its cores. Frames are as on a wire, \
             each node has one worker, and clients open a connection for each request. *CPU* is that of the whole bed: \
             client, dispatcher, nodes, netguards and their kernels, with all of ksoftirqd; *others* is other load \
             of the machine. *The paper* is Doh and Noh, 2006, which introduced LCCP; XO and Prism are \
             other published systems for TCP handoff; SURGE is the generator of web load that the paper used. A \
             ratio is of two measurements of the same round. It is bold where Skep is worse, or misses the goal.\n",
        );
        self.moves.iter().for_each(|part| moves::add(&mut page, part));
        self.to_self.iter().for_each(|part| to_self::add(&mut page, part));
        self.nodes.iter().for_each(|part| nodes::add(&mut page, part));
        self.sizes.iter().for_each(|part| sizes::add(&mut page, part));
        self.loss.iter().for_each(|part| loss::add(&mut page, part));
        self.transports.iter().for_each(|part| transports::page::add(&mut page, part));
        self.relay.iter().for_each(|part| relay::add(&mut page, part));
        page.add("## Not measured\n");
        page.add(
            "Whole moves by LCCP on TCP: Skep has no such transport, and only the messages are measured. XO and \
             Prism themselves: they need a switch, or are not available.\n",
        );
        for trouble in &self.troubles {
            page.add(&format!("Not measured: {trouble}\n"));
        }
        page
    }
}
