# needs: git
cd "$D" || exit 9
export HOME="$W" GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2005-01-01T00:00:00Z' GIT_COMMITTER_DATE='2005-01-01T00:00:00Z'
git config --global init.defaultBranch main; git config --global gc.auto 0; git config --global maintenance.auto false; git config --global advice.detachedHead false
git init -q repo; cd repo || exit 8
for i in $(seq 30); do seq $i $((i * 20)) > f$i; done; mkdir d; echo x > d/y; ln -s d/y link; printf '#!/bin/sh\n' > x.sh; chmod +x x.sh; git add .; git commit -qm one; git status --short; git rev-parse HEAD
echo change >> f1; rm f2; git mv f3 d/f3; git status --short; git diff --stat; git add -A; git commit -qm two; git log --oneline; git show --stat --format=%s HEAD
git checkout -qb side HEAD~1; echo side > side; git add side; git commit -qm side; git checkout -q main; git merge -q -m merged side; git log --oneline --graph | wc -l; git stash list; echo wip >> f5; git stash -q; git stash pop -q; git diff --name-only; git checkout -q f5; git tag v1; git branch
cd ..; git clone -q repo clone; git -C clone rev-parse HEAD; git clone -q --no-hardlinks --bare "file://$D/repo" bare; git -C repo gc -q --prune=now; git -C repo fsck --strict; echo "fsck $?"; git -C bare fsck; git -C repo count-objects -v | grep -E 'in-pack|packs'; git -C clone pull -q; git -C clone push -q origin HEAD:refs/heads/pushed; git -C repo rev-parse pushed; git -C clone grep -n change; git -C clone blame f1 | tail -1 | cut -c1-8; git -C clone worktree add -q ../wt v1; git -C wt status -sb | head -2; git -C repo archive HEAD | tar tf - | wc -l; git -C clone repack -adq; git -C clone clean -fdxq; git -C clone reset -q --hard HEAD~1; git -C clone log --oneline | head -1
# What differs from run to run: times and numbers of files in the index, sockets.
rm -rf */.git/index wt/.git bare clone/.git/worktrees repo/.git/logs clone/.git; find repo/.git -name '*.idx' -o -name '*.rev' -o -name '*.bitmap' | sed 's/.*\.//' | sort; rm -rf repo/.git/objects/pack repo/.git/hooks
