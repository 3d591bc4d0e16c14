import json, sys
def test_sig(finished):
    for l in open(finished/"metrics.jsonl"):
        r=json.loads(l)
        print(r["step"], r.get("held_out"), r.get("generator_reward"), r.get("dropped"), r.get("validity"), [ (k, r[k].get("samples"), r[k].get("groups_without_signal"), r[k].get("gradient_norm")) for k in ("generator","discriminator") if k in r])
