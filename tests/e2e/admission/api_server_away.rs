//! Policies that change right after an outage of the API server.

use std::time::{Duration, Instant};

use super::{
    mutation_policies::{JOBS, bind, create, labelled, policy},
    *,
};

/// Long enough for the pauses between a watch's attempts to reach their maximum.
const OUTAGE: Duration = Duration::from_secs(47);

fn label(song: &str) -> String {
    format!("Object{{metadata: Object.metadata{{labels: {{\"team\": \"{song}\"}}}}}}")
}

#[tokio::test]
async fn new_policy_is_in_force_soon_after_an_outage_of_the_api_server() {
    let mut world = AdmissionCluster::start(JOBS, &[]).await.unwrap();
    let before = policy("before", &label("before"), json!({}));
    create(&world, "mutationpolicies", &before).await;
    bind(&world, "before", Value::Null).await;
    labelled(&world, "before").await;

    world.plane.apiserver_away(OUTAGE).await.unwrap();
    let back = Instant::now();
    let after = policy("later", &label("after"), json!({}));
    let create_again = async || {
        let response = create(&world, "mutationpolicies", &after).await;
        [201, 409].contains(&response.status).then_some(())
    };
    let what = "a policy can be created after the outage";
    eventually(what, PATIENCE, create_again, async || world.state()).await;
    bind(&world, "later", Value::Null).await;
    labelled(&world, "after").await;
    let took = back.elapsed();
    println!("in force {took:?} after the API server was ready");
    // Watches start again at most 5 s apart.
    assert!(
        took < Duration::from_secs(30),
        "{took:?}\n{}",
        world.state()
    );
}
