//! What [`super::serve`] serves: the endpoint, and routes beside it.
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use http::{Method, Request};
use hyper::body::Incoming;
use tower::Service as _;

use super::connection::Connection;
use super::{Endpoint, Service, handle};

pub(super) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;
type Post = dyn Fn(Request<Incoming>, Connection) -> Answering + Send + Sync;

/// Routes, one of which may be an endpoint whose POST requests, which are almost all there are, go straight to it. Cheap
/// to clone.
#[derive(Clone)]
pub struct App {
    front: Option<Arc<Front>>,
    routes: Router,
}

struct Front {
    paths: Vec<String>,
    post: Box<Post>,
}

impl App {
    pub(super) fn of<S: Service>(endpoint: Arc<Endpoint<S>>) -> App {
        let views = endpoint.config.views.iter().map(|p| p.to_string());
        let paths: Vec<String> = std::iter::once(endpoint.config.path.clone()).chain(views).collect();
        let also = endpoint.clone();
        let route = any(move |request: Request<Body>| {
            let connection = request.extensions().get::<Connection>().cloned();
            handle::handle(also.clone(), request, connection)
        });
        let routes = paths.iter().fold(Router::new(), |routes, path| routes.route(path, route.clone()));
        let post = Box::new(move |request, connection| -> Answering {
            Box::pin(handle::handle(endpoint.clone(), request, Some(connection)))
        });
        App { front: Some(Arc::new(Front { paths, post })), routes }
    }

    /// With further routes beside the endpoint.
    ///
    /// # Panics
    /// If one of them has the endpoint's path.
    #[must_use]
    pub fn merge(self, routes: Router) -> App {
        App { front: self.front, routes: self.routes.merge(routes) }
    }

    /// Answers one request.
    pub(super) fn answer(&self, mut request: Request<Incoming>, connection: &Connection) -> Answering {
        if let Some(front) = &self.front
            && request.method() == Method::POST
            && front.paths.iter().any(|path| path == request.uri().path())
        {
            return (front.post)(request, connection.clone());
        }
        request.extensions_mut().insert(connection.clone());
        let mut routes = self.routes.clone();
        Box::pin(async move { routes.call(request.map(Body::new)).await.unwrap_or_else(|e| match e {}) })
    }
}

impl From<Router> for App {
    fn from(routes: Router) -> App {
        App { front: None, routes }
    }
}

impl From<App> for Router {
    fn from(app: App) -> Router {
        app.routes
    }
}
