# A cleaned environment, sessions and shells of other processes keep the forwarding.
cd "$D" || exit 9
echo x > f; env -i /bin/cat "$D/f"; env -i PATH="$PATH" sh -c 'echo cleaned > g; cat g'; env -u LD_PRELOAD cat f; (unset LD_PRELOAD FOREBAY_CONFIG; cat f; sh -c 'cat f; env -i /bin/cat f'); setsid -w cat f; nohup cat f 2> /dev/null; timeout 5 cat f; nice cat f; echo f | xargs cat; (exec -a other cat f); env -C "$D" cat f; sh -c "cd '$D'; exec env -i D='$D' /bin/sh -c 'cat f; test \"\$(pwd)\" = \"\$D\" && echo same'"; printenv | grep -c '^FOREBAY_EXE\|^FOREBAY_LD'
printf '#!/bin/sh\nexec cat "$(dirname "$0")/f"\n' > s; chmod +x s; env -i "$D/s"; cd /; "$D/s"; cd "$D"; ./s < /dev/null; time -p true 2> /dev/null; stat -c %n f
