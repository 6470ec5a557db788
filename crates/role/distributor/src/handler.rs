//! A handler that hands connections off to the nodes that should answer their requests.

use std::rc::Rc;

use skep_engine::{
    Answered, ConnectionSoFar, Departed, Departure, Destination, Exchange, ExchangeError, Handler,
    Quick, Reply,
};
use skep_http::RequestHead;

use crate::worker::WorkerDistributor;

/// Answers by `inner`, unless the distributor, if there is one, hands the connection off.
pub struct Distributing<H> {
    inner: Rc<H>,
    distributor: Option<Rc<WorkerDistributor>>,
}

impl<H> Distributing<H> {
    /// Without a distributor all connections stay.
    pub fn new(inner: Rc<H>, distributor: Option<Rc<WorkerDistributor>>) -> Rc<Self> {
        Rc::new(Self { inner, distributor })
    }
}

impl<H: Handler> Handler for Distributing<H> {
    fn destination(
        &self,
        request: &RequestHead<'_, '_>,
        connection: &ConnectionSoFar<'_>,
    ) -> Option<Destination> {
        let bytes = || self.inner.expected_bytes(request);
        self.distributor.as_ref()?.destination(request, connection, bytes)
    }

    async fn depart(&self, departure: Departure<'_, '_, '_>) -> Departed {
        match &self.distributor {
            Some(distributor) => distributor.depart(departure).await,
            None => Departed::Kept,
        }
    }

    fn idle_destination(&self, connection: &ConnectionSoFar<'_>) -> Option<Destination> {
        self.distributor.as_ref()?.idle_destination(connection)
    }

    fn expected_bytes(&self, request: &RequestHead<'_, '_>) -> Option<u64> {
        self.inner.expected_bytes(request)
    }

    fn answered(&self, answered: &Answered<'_>) {
        if let Some(distributor) = &self.distributor {
            distributor.answered(answered);
        }
        self.inner.answered(answered);
    }

    fn quick(&self, request: &RequestHead<'_, '_>, reply: &mut Reply<'_>) -> Quick {
        self.inner.quick(request, reply)
    }

    /// A destination is determined only for requests whose head was parsed.
    fn answers_quickly(&self) -> bool {
        self.distributor.is_some() || self.inner.answers_quickly()
    }

    async fn slow(
        &self,
        request: &RequestHead<'_, '_>,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), ExchangeError> {
        self.inner.slow(request, exchange).await
    }
}
