//! A context without a caller, for handlers that recovery runs again. The SDK makes a peer only together with a connection;
//! this one's is closed before anything can be sent on it, so that whatever a handler sends or asks fails at once.

use rmcp::model::RequestId;
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleServer, ServerHandler};
use std::future::Future;
use std::io;

struct Nobody;

impl ServerHandler for Nobody {}

impl Transport<RoleServer> for Nobody {
    type Error = io::Error;

    fn send(
        &mut self,
        _: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        std::future::ready(Err(io::ErrorKind::NotConnected.into()))
    }
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        None
    }
    async fn close(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}

/// A peer that nobody is behind. Inside a Tokio runtime.
pub(crate) async fn peer() -> Peer<RoleServer> {
    let service = serve_directly(Nobody, Nobody, None);
    let peer = service.peer().clone();
    // Its end: from here on the peer says that its transport is closed.
    let _ = service.waiting().await;
    peer
}

/// A context of a request that nobody made.
pub(crate) fn context(peer: Peer<RoleServer>) -> RequestContext<RoleServer> {
    RequestContext::new(RequestId::Number(0), peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_can_be_told_or_asked_anything() {
        let peer = peer().await;
        assert!(peer.is_transport_closed());
        assert!(peer.notify_tool_list_changed().await.is_err());
        assert!(context(peer).client_capabilities().is_none());
    }
}
